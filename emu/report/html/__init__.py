"""report.html: one file with the course of a run, offline and without a server.

The charts are drawn on canvases by the few hundred lines under ``assets/``. Charting
libraries were measured first, in headless Chromium on two cores with 100,000 bars:
plotly (SVG, 4.8 MB) drew them after 12 s and took 12 s per zoom; bokeh (canvas, 1.3 MB)
drew after 1.2 s and took 0.5 s per zoom. These draw 440,000 bars after 1.5 s and take
0.05 to 0.12 s per zoom: a frame fills at most one rectangle per pixel and row. And
Gantt, rates and losses share one time axis.
"""
