"""The rules for rates, as compiled code knows them."""

from __future__ import annotations

from typing import Final

OES: Final = 0
MAXMIN: Final = 1
OES_CP: Final = 2
WEIGHTED_MAXMIN: Final = 3
MRTF: Final = 4
MRTF_EXCLUSIVE: Final = 5
OMCOFLOW: Final = 6
OMCOFLOW_FROZEN: Final = 7
OMCOFLOW_WC: Final = 8
OMCOFLOW_GAMMA: Final = 9
SEBF_MADD: Final = 10
FIFO: Final = 11
OES_BY_JOB: Final = 12
MAXMIN_BY_JOB: Final = 13
