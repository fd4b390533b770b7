"""``python -m emu`` and ``emu``: the command line."""

from emu.host.first_moments import begin

begin()  # before any other import: a signal may come at any time

from emu.host.interruption import one_line_at_a_signal  # noqa: E402


def main() -> None:
    """Run the command that the arguments of this process name."""
    one_line_at_a_signal(_run)


def _run() -> None:
    from emu.cli.app import main as run_command  # noqa: PLC0415

    run_command()


if __name__ == "__main__":
    main()
