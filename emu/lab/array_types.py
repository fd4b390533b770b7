"""Types of the arrays of what crossed in a lab."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
#: Numbers of packets or processes, and bytes.
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
#: Rows with named fields, as of `emu.prediction.analysis.traffic`.
Records: TypeAlias = NDArray[np.void]
