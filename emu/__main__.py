"""``python -m emu`` and ``emu``: the command line."""

from emu.interruption import one_line_at_a_signal


def main() -> None:
    """Run the command that the arguments of this process name."""
    # Before the imports: a signal may come at any time.
    with one_line_at_a_signal():
        from emu.cli.app import main as run_command  # noqa: PLC0415

        run_command()


if __name__ == "__main__":
    main()
