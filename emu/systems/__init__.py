"""Systems: each in a room of its own, found by the entry-point group ``emu.systems``.

A room ``emu/systems/NAME`` holds the keys of its ``job`` section, the tasks, edges and
volumes that follow from them, and what its results mean; its node programs stand in
``emu_nodes``. Nothing outside the rooms names a system. docs/systems.md adds one.

Must not know: scenario files, sockets, other rooms than those that it builds on.
"""
