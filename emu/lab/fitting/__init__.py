"""From what crossed between the processes of a lab to a job that a scenario can state.

`conversations` tells requests, answers and an all-reduce apart, `iterations` cuts them
into iterations or makes one of all, `fitted_job` writes what was found as a custom job.
Pure: what it gets is `emu.prediction.analysis.traffic.Traffic`. Must not know: files,
labs, simulations.
"""
