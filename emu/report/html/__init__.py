"""report.html: one file that tells the story of a run, offline and without a server.

The charts are drawn on canvases by the few hundred lines under ``assets/``. Charting
libraries were measured first on 100,000 bars; the figures are in ``page.py``.
"""

from emu.report.html.page import report_page, write_report

__all__ = ["report_page", "write_report"]
