/* Turns of the coordinator that rings bring about: what processes report is taken in, and what
 * follows goes back to them, without a line of Python.
 *
 * Through callbacks, a mailbox and a coroutine an end took the coordinator 23 to 32 us; here it
 * takes 15 to 22, more than half in the kernel. Refusals and notifications are left to Python. */
#define _GNU_SOURCE
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#include <sys/timerfd.h>
#endif
#include "clock.h"
#include "inline.h"

/* Processes that one call may find awake; the number of the alarm among theirs. */
enum { AWAKE = 64, ALARM = -1 };
/* Seconds for which the alarm is set at most. */
enum { LONGEST = 3600 };

static double run_time(const RingTurns *t, double wall) { return (wall - t->start) / t->scale; }

/* Return the seconds for which this thread has waited for a core since the last call. */
static double wait_of(TurnLog *log)
{
    double waited = waited_for_core(log->fd), before = log->waited;
    log->waited = waited;
    return waited - before;
}

/* Begin a turn at a wall time. */
void begin_turn(TurnLog *log, double now)
{
    log->began = now;
    log->before = wait_of(log);
}

/* End a turn, and keep it if it, or the wait before it, was long and there is room. */
void end_turn(TurnLog *log, double now)
{
    double longest = larger(now - log->began, log->before);
    if (longest < log->brief)
        return;
    double within = wait_of(log);
    if (longest > log->least && log->count < log->room)
        log->row[log->count++] = (TurnRow){log->began, now, log->before, within};
}

#ifdef __linux__
/* Open what wakes the coordinator; false where there are no descriptors for it. */
bool open_ring_turns(RingTurns *t)
{
    t->epoll = epoll_create1(EPOLL_CLOEXEC);
    t->alarm = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (t->epoll < 0 || t->alarm < 0)
        return false;
    /* By its edges the alarm need not be read. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = (uint64_t)ALARM};
    bool is_open = epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->alarm, &event) == 0;
    for (int64_t i = 0; i < t->leads && is_open; i++) {
        event = (struct epoll_event){.events = EPOLLIN, .data.u64 = (uint64_t)i};
        if (t->lead[i].reads != NULL)
            is_open = epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->lead[i].woken, &event) == 0;
    }
    return is_open;
}

/* Note who has woken this process: something has come, or there is room again. */
static void note_woken(RingTurns *t)
{
    struct epoll_event ready[AWAKE];
    int count = epoll_wait(t->epoll, ready, AWAKE, 0);
    for (int i = 0; i < count; i++) {
        int64_t number = (int64_t)ready[i].data.u64;
        if (number == ALARM) {
            t->due = INFINITY; /* it is spent */
            continue;
        }
        char bytes[AWAKE];
        ssize_t read_bytes = read(t->lead[number].woken, bytes, sizeof bytes);
        (void)read_bytes;
        t->lead[number].has_come = true;
    }
}

/* Hear no more of a process, whose rings go. */
void leave_rings(RingTurns *t, int64_t number)
{
    RingLead *lead = t->lead + number;
    if (lead->reads != NULL)
        epoll_ctl(t->epoll, EPOLL_CTL_DEL, lead->woken, NULL);
    lead->reads = NULL;
    lead->writes = NULL;
    lead->has_come = false;
}
#else
bool open_ring_turns(RingTurns *t)
{
    (void)t;
    return false;
}

static void note_woken(RingTurns *t) { (void)t; }

void leave_rings(RingTurns *t, int64_t number) { (void)t, (void)number; }
#endif

/* Take in what a process has reported by now, run time; false where Python is to see it. */
static bool take_notes(RingTurns *t, int64_t number, double now)
{
    Desk *desk = t->turn->desk;
    RingLead *lead = t->lead + number;
    t->speaker = number;
    while (lead->has_come) {
        int64_t size = read_ring(lead->reads, t->notes);
        lead->has_come = size > 0;
        t->size = size;
        if (size == RING_BROKEN)
            return false;
        if (size == 0)
            break;
        if (t->leaves_notes)
            return false;
        t->fault = take_ends(desk, number, (const char *)t->notes, size, now);
        if (t->fault != TAKEN || desk->reports > 0)
            return false;
    }
    /* It may have read on: orders that had no room are Python's. */
    return lead->writes == NULL || !lead->writes->is_queued;
}

/* Take in what all have reported by a wall time; false where Python is to see the notes of
 * t->speaker before the rest. */
bool read_rings(RingTurns *t, double now)
{
    note_woken(t);
    for (int64_t i = 0; i < t->leads; i++)
        if (t->lead[i].has_come && !take_notes(t, i, run_time(t, now)))
            return false;
    return true;
}

/* True where the rates of all instants have room on the record, and on that of the boards. */
static bool has_room(const Turn *turn)
{
    const RateRows *rates = turn->rates;
    const Boards *boards = turn->boards;
    int64_t lines = turn->found->lines[turn->passage->count];
    return rates->count + lines <= rates->room
           && boards->shown + boards->count * turn->desk->edges <= boards->room;
}

/* Write orders for a process; false where its ring has no room for them, or it has none. */
static bool write_orders_of(const Desk *desk, const RingLead *lead, int64_t number)
{
    if (lead->writes == NULL || lead->writes->is_queued)
        return false;
    int64_t begin = desk->order_start[number], end = desk->order_start[number + 1];
    return fill_ring(lead->writes, desk->orders + begin, end - begin) == RING_PASSED;
}

/* Pass all orders on; return false where some are left, which stay among the addressed. All are
 * written before anybody is woken, who may take the core. */
static bool pass_orders(RingTurns *t)
{
    Desk *desk = t->turn->desk;
    int64_t left = 0, count = desk->addressees;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = desk->addressed[i];
        if (!write_orders_of(desk, t->lead + number, number))
            desk->addressed[left++] = number;
    }
    desk->addressees = left;
    for (int64_t i = 0; i < t->leads; i++)
        if (t->lead[i].writes != NULL)
            wake_reader(t->lead[i].writes);
    return left == 0;
}

/* Settle what is due by a wall time; return what is left to Python. */
static int64_t settle(RingTurns *t, double now)
{
    Turn *turn = t->turn;
    double ahead = run_time(t, now + t->ahead);
    t->outcome = settle_due(turn, run_time(t, now - t->reported), ahead);
    if (t->outcome != DONE || !has_room(turn))
        return INSTANTS_LEFT;
    if (turn->passage->count == 0)
        return NOTHING_LEFT;
    if (!draw_consequences(turn))
        return INSTANTS_LEFT;
    if (!pass_orders(t))
        return ORDERS_LEFT;
    return t->is_watched ? ENDS_LEFT : NOTHING_LEFT;
}

/* Have the alarm ring when something is due: a little before, if it can be settled then. */
void set_turn_alarm(RingTurns *t, double now)
{
    const Desk *desk = t->turn->desk;
    double next = t->turn->passage->next;
    if (desk->waiting > 0)
        next = smaller(next, desk->time[0]);
    double wall = t->start + next * t->scale, early = wall - t->ahead / 2;
    double due = early > now ? early : wall + t->reported;
    if (isfinite(due)) /* a timer counts nanoseconds: it has no room for any time */
        due = smaller(due, now + LONGEST);
    if (due == t->due)
        return;
    t->due = due;
    set_timer(t->alarm, due);
}

/* Take the turn that something has brought about; return what is left to Python. */
int64_t take_ring_turn(RingTurns *t)
{
    double now = monotonic();
    begin_turn(t->log, now);
    int64_t left = NOTES_LEFT;
    if (read_rings(t, now))
        left = t->leaves_turns ? TURN_LEFT : settle(t, now);
    set_turn_alarm(t, now);
    end_turn(t->log, monotonic());
    return left;
}
