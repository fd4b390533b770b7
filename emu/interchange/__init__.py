"""Workloads and topologies of others, read into scenarios, and runs written for them.

One module per format. It knows what the file says and what a custom job can say of it;
what it cannot is counted by name, for the user to see. It must not know scenarios,
sections, schedules. Start at ``workload.py``.
"""
