/* Rate segments on their way: to boards in shared memory, and who is notified of them.
 *
 * pacing.c reads what is written here, in another process. */
#include "inline.h"

/* An entry is framed by two counts: who reads upwards while it is written sees two. */
static void write_entry(BoardEntry *entry, const Segments *s, int64_t i)
{
    volatile BoardEntry *e = entry;
    uint64_t count = entry->ended + 1;
    __atomic_store_n(&entry->begun, count, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    e->iteration = s->iteration[i];
    e->served = s->served[i];
    e->rate = s->rate[i];
    e->since = s->since[i];
    e->number = s->number == NULL ? count : (uint64_t)s->number[i];
    __atomic_store_n(&entry->ended, count, __ATOMIC_RELEASE);
}

/* Flows whose rate falls come first: whoever sees a raised rate then sees it beside lowered
 * ones, so that a port is not over-used in between. */
void order_of_publication(const BoardEntry *board, const Segments *s, int64_t *order)
{
    int64_t falling = 0, others = s->count;
    for (int64_t i = s->count - 1; i >= 0; i--) {
        const BoardEntry *e = board + s->edge[i];
        bool falls = e->iteration == s->iteration[i] && e->rate > s->rate[i];
        if (!falls)
            order[--others] = i;
    }
    for (int64_t i = 0; falling < others; i++) {
        const BoardEntry *e = board + s->edge[i];
        if (e->iteration == s->iteration[i] && e->rate > s->rate[i])
            order[falling++] = i;
    }
}

/* Write all segments, or return false: one is of no entry of the board. */
bool publish(BoardEntry *board, int64_t entries, const Segments *s, int64_t *order)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->edge[i] < 0 || s->edge[i] >= entries)
            return false;
    order_of_publication(board, s, order);
    for (int64_t i = 0; i < s->count; i++)
        write_entry(board + s->edge[order[i]], s, order[i]);
    return true;
}

/* Read back what a board shows of some edges. */
void read_board(const BoardEntry *board, const int64_t *edge, int64_t count, BoardRow *row)
{
    for (int64_t i = 0; i < count; i++) {
        const BoardEntry *e = board + edge[i];
        row[i] = (BoardRow){e->since, (uint32_t)edge[i], (uint32_t)e->iteration, e->rate};
    }
}

/* Fill in which segments their senders are notified of; return how many. Of a flow that
 * begins nothing is known: any rate is a rise. */
int64_t find_rises(const Segments *s, int64_t *iteration, double *known, int64_t *rises)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s->count; i++) {
        int64_t edge = s->edge[i];
        double rate = s->rate[i];
        double lowest = iteration[edge] == s->iteration[i] ? known[edge] : 0.0;
        bool wakes = rate > 0 && rate >= RISE * lowest;
        iteration[edge] = s->iteration[i];
        known[edge] = wakes ? rate : smaller(lowest, rate);
        if (wakes)
            rises[count++] = i;
    }
    return count;
}
