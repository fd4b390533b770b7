"""``python -m emu``: the command line."""

from emu.cli import main

if __name__ == "__main__":
    main()
