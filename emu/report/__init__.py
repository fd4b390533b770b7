"""Tables, pictures and pages of a run, and the live page while it goes.

Decides what a person sees, in at most 100 columns. It must not know how a schedule was
made, nor the command line.
Start at ``facts.py``; ``html/page.py`` makes pages, ``dashboard/`` shows a run as it
goes.
"""
