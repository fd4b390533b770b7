"""Rows that say which frame crossed when: what senders and receivers note of each.

``first`` and ``last``: of the frame's first and last bytes, run seconds. A receiver
takes its kernel's notes, a sender the instants before it handed the bytes to its own.
``bytes``: payload, real bytes.
"""

from __future__ import annotations

import numpy as np

FRAME_ROWS = np.dtype(
    [
        ("edge", "<u4"),
        ("iteration", "<u4"),
        ("first", "<f8"),
        ("last", "<f8"),
        ("bytes", "<u8"),
    ]
)
