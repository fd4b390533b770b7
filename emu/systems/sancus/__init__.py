"""Sancus (Peng et al., VLDB 2022): whole parts are broadcast, seldom."""

from emu.systems.exchange_system import exchange_system

SANCUS = exchange_system("sancus", "emu.systems.sancus.section:SancusSection")
