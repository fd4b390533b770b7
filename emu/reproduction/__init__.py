"""The figures of the papers beside what this model finds: ``emu reproduce``.

`claims` reads the papers' numbers and the experiments that stand beside them from
papers.yaml; `figures`, `drawn_machines` and `whole_graph` measure; `rows` puts both
side by side; `blocks` and `page` write them.

Must not know: the command line.
"""
