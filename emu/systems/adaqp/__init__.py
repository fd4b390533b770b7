"""AdaQP (Wan et al., MLSys 2023): rows of 2, 4 or 8 bits per number."""

from emu.systems.exchange_system import exchange_system

ADAQP = exchange_system("adaqp", "emu.systems.adaqp.section:AdaqpSection")
