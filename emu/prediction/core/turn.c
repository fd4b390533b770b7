/* A turn of the coordinator: ends that are due are taken in, and what follows is put where
 * processes and the record of the run find it.
 *
 * As nine calls, each with its arrays, it took 108 us under cProfile, and the calls 10 of them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>
#include "inline.h"

/* Take ends in as far as there is room for what follows; return how it ended. */
int64_t settle_rest(Turn *turn)
{
    Desk *desk = turn->desk;
    int64_t outcome = pass_instants(turn->layout, turn->state, desk->volumes, desk->holds,
                                    turn->gates, turn->changes, &desk->due, turn->until,
                                    turn->found, turn->passage);
    if (outcome == IMPOSSIBLE)
        return outcome;
    if (!note_instants(desk, turn->found, turn->gates, turn->passage))
        return UNSOUND;
    if (outcome == DONE)
        drop_ends(desk, turn->passage->taken);
    turn->finished = all_ended(turn->layout, turn->state);
    return outcome;
}

/* Begin the schedule at time 0; return as `settle_rest`. */
int64_t begin_schedule(Turn *turn)
{
    turn->desk->due.count = 0;
    turn->passage->taken = -1;
    turn->passage->ahead = -INFINITY;
    turn->until = -INFINITY;
    return settle_rest(turn);
}

/* Take in the ends that are due by `until`, and all that had passed when they were
 * reported; before `ahead` what nothing unknown can precede. Return as `settle_rest`. */
int64_t settle_due(Turn *turn, double until, double ahead)
{
    turn->until = larger(until, turn->desk->last_past);
    turn->passage->taken = 0;
    turn->passage->ahead = find_due(turn->desk, turn->state, turn->until, ahead);
    return settle_rest(turn);
}

/* Put the newest rates on the boards of this host, and keep what they show then. */
static bool show_rates(Desk *desk, Boards *boards)
{
    if (boards->shown + boards->count * desk->news.count > boards->room)
        return false;
    for (int64_t i = 0; i < boards->count; i++) {
        BoardEntry *board = boards->board[i];
        if (!publish(board, boards->entries, &desk->news, boards->order))
            return false;
        read_board(board, desk->news_edge, desk->news.count, boards->row + boards->shown);
        boards->shown += desk->news.count;
    }
    return true;
}

/* Keep the rates of all that was found. */
static bool keep_rates(RateRows *rates, const Instants *found, int64_t count)
{
    int64_t lines = found->lines[count], first = rates->count;
    size_t size = (size_t)lines * sizeof(double);
    if (first + lines > rates->room)
        return false;
    memcpy(rates->since + first, found->since, size);
    memcpy(rates->edge + first, found->edge, size);
    memcpy(rates->iteration + first, found->iteration, size);
    memcpy(rates->rate + first, found->rate, size);
    rates->count += lines;
    return true;
}

/* Publish, order and record what follows from the instants that were found last. Return
 * false: there is no room for it. */
bool draw_consequences(Turn *turn)
{
    Desk *desk = turn->desk;
    const Instants *found = turn->found;
    int64_t count = turn->passage->count;
    bool has_news = desk->news.count > 0;
    desk->addressees = 0;
    if (has_news && !show_rates(desk, turn->boards))
        return false;
    if ((has_news || found->tasks[count] > 0) && !write_orders(desk, turn->state, found, count))
        return false;
    return keep_rates(turn->rates, found, count);
}

/* Return the seconds for which a thread has waited for a core so far: the second count of its
 * schedstat, open as `fd`; 0 where that cannot be read. */
double waited_for_core(int32_t fd)
{
    char text[96], *rest;
    ssize_t size = pread(fd, text, sizeof text - 1, 0);
    if (size <= 0)
        return 0.0;
    text[size] = 0;
    strtoull(text, &rest, 10); /* nanoseconds on a core */
    return (double)strtoull(rest, NULL, 10) * 1e-9;
}
