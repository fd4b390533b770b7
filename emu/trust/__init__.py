"""Trust in a run's numbers: verdict, guards, audits, reference rates, lateness.

Nothing here that guards scheduling or simulation imports them.
"""
