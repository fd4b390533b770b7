"""Would a faster NIC help, and would another placement? Ten lines of `emu`.

python scenarios/faster_nic.py
"""

import emu

scenario = emu.load("golden")
faster = emu.load(scenario, {"cluster.machines[0].nic": "20 B/s", "expect": None})
placed = emu.place(faster, policy="best")
for what, variant in (("as it is", scenario), ("faster", faster), ("placed", placed)):
    print(f"{what:10}{emu.simulate(variant).makespan:g} s")
run = emu.run(emu.load(faster, {"emulation.time_scale": 0.05}))
print(f"run       {run.makespan:.2f} s over sockets, see {run.path}/report.html")
