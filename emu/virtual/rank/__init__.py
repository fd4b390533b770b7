"""What runs in a rank: torch's process group, store and clock of a virtual cluster.

Start at ``process_group.py``. It must not decide when anything is over: that is said by
`emu.virtual.cluster_server`.
"""
