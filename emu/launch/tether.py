"""Importing this module ties the process to its parent: it dies when that one does.

For the fork server, which has no code of ours to call. Left alone it would outlive a
killed agent for as long as one of its children lives, or until its imports are done.
"""

from emu.launch.signals import die_with_parent

die_with_parent()
