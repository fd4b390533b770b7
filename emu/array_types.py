"""Types of arrays."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
#: Numbers of vertices, edges, tasks or packets, counts of them, and bytes.
Ints: TypeAlias = NDArray[np.int64]
#: Parts, classes and positions.
SmallInts: TypeAlias = NDArray[np.int32]
#: Features, a row per vertex.
Rows: TypeAlias = NDArray[np.float32]
Mask: TypeAlias = NDArray[np.bool_]
#: Rows with named fields, as of `emu.prediction.analysis.traffic`.
Records: TypeAlias = NDArray[np.void]
