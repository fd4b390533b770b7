"""Types of the arrays of graphs."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
#: Numbers of vertices or edges, and counts of them.
Ints: TypeAlias = NDArray[np.int64]
#: Parts, classes and positions.
SmallInts: TypeAlias = NDArray[np.int32]
#: Features, a row per vertex.
Rows: TypeAlias = NDArray[np.float32]
Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
