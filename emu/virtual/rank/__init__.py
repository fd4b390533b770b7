"""Code that runs in ranks: torch's process group, store and clock there.

Start at ``process_group.py``. It must not decide when anything is over: that is said by
`emu.virtual.cluster_server`.
"""
