"""BNS-GCN (Wan et al., MLSys 2022): a share of the boundary, drawn per epoch."""

from emu.systems.exchange_system import exchange_system

BNS_GCN = exchange_system("bns_gcn", "emu.systems.bns_gcn.section:BnsGcnSection")
