/* Bounds on a placed job; see emu/prediction/analysis/bounds.py. */
#include "inline.h"

/* Set when each flow can be active at the earliest, were all others free.
 *
 * Given as zeros: `ready` and `arrived` (edges, iterations), `ended` (tasks,
 * iterations). A flow is as fast as if alone: LP of DGTP's Appendix B. */
void earliest_ready(const Layout *layout, const double *times, const double *volumes,
                    double *ready, double *arrived, double *ended)
{
    int64_t row = layout->iterations;
    for (int64_t n = 0; n < row; n++)
        for (int64_t place = 0; place < layout->tasks; place++) {
            int64_t task = layout->order[place];
            if (n >= layout->rounds[task])
                continue;
            double start = n > 0 ? ended[task * row + n - 1] : 0.0;
            for (int64_t i = layout->in_start[task]; i < layout->in_start[task + 1];
                 i++) {
                int64_t edge = layout->in_edge[i], lag = layout->lag[edge];
                if (lag <= n && n < lag + layout->sent[edge])
                    start = larger(start, arrived[edge * row + n - lag]
                                              + latency_of(layout, edge));
            }
            double end = ended[task * row + n] = start + times[task * row + n];
            for (int64_t i = layout->out_start[task]; i < layout->out_start[task + 1];
                 i++) {
                int64_t edge = layout->out_edge[i], flow = edge * row + n;
                int64_t group = layout->group[edge];
                arrived[flow] = end;
                if (group < 0)
                    continue;
                ready[flow] = n > 0 ? larger(end, arrived[flow - 1]) : end;
                arrived[flow] =
                    ready[flow] + volumes[flow] / least_over(layout, layout->capacity, group);
            }
        }
}
