"""Whether to believe a number: verdict, guards, audits, reference rates, lateness.

Nothing here that guards scheduling or simulation imports them.
"""
