"""PipeGCN (Wan et al., ICLR 2022): rows and gradients of the epoch before."""

from emu.systems.exchange_system import exchange_system

PIPEGCN = exchange_system("pipegcn", "emu.systems.pipegcn.section:PipegcnSection")
