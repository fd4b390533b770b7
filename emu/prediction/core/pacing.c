/* How many bytes a sender that keeps to rates may send now, and when it looks again.
 *
 * A flow with assigned rates is a fluid F(t), the integral of the rate, known by its newest
 * straight piece; emu/emulation/shaping.py says what a sender may do beside it. All times
 * are handed in: trials in virtual time and sockets share these rules. */
#include "inline.h"

/* The fluid has reached the volume when this share of it is missing: a scheduler that clips
 * `served` at the volume must not leave the last bytes waiting on a rounding. */
#define ROUNDING 1e-9
/* A writer holds an entry for some microseconds; a reader that meets a writer stopped in the
 * middle gives up and looks again at its next look. */
enum { ATTEMPTS = 1000 };
/* A frame that ends so many seconds after its fluid counts as late. */
#define LATE 1e-3

static double fluid_at(const Segment *s, double time)
{
    return s->served + s->rate * larger(0.0, time - s->since);
}

double fluid_end(const Segment *s, double volume)
{
    double missing = volume - s->served;
    if (missing <= ROUNDING * volume)
        return s->since;
    return s->rate > 0 ? s->since + missing / s->rate : INFINITY;
}

int64_t allowance(const Segment *s, double now, int64_t sent, int64_t volume,
                  const Pace *pace)
{
    double soon = now + pace->lead_time;
    if (fluid_end(s, (double)volume) <= soon)
        return volume - sent;
    double least = soon >= s->since ? pace->lead_bytes : 0.0;
    double most = larger(fluid_at(s, soon), fluid_at(s, now) + least);
    return at_least(0, (int64_t)smaller(most, (double)volume - pace->tail) - sent);
}

/* When to look again: for the last bytes, or before a new segment matters.
 *
 * A segment seen late costs nothing unless the fluid ends before it is seen. Who waits for a
 * rate, or gets RISE times the lowest that was on the board since it was last notified, is
 * notified; so at half of the time that is left at the present rate nothing has been missed.
 * Within `shortest` of the end a smaller rise is: the flow ends late by up to half of that,
 * 0.25 ms. `notified`: there is a newer segment that cannot be seen yet, as segments and
 * messages go to another host by two ways; `sending`: bytes are left before the last ones. */
double next_look(const Segment *s, double now, int64_t volume, const Pace *pace,
                 bool notified, bool sending)
{
    if (s == NULL)
        return now + (notified ? pace->shortest : pace->idle);
    double end = fluid_end(s, (double)volume) - pace->lead_time;
    double begin = s->since - pace->lead_time;
    if (end <= now)
        return now;
    if (notified)
        return smaller(end, now + pace->shortest);
    if (now < begin) /* nothing may go yet */
        return smaller(begin, now + pace->idle);
    double longest = pace->idle;
    if (sending && end < INFINITY) { /* half of what the bucket holds: nothing is lost */
        double step = (pace->catch_up + pace->lead_bytes / s->rate) / RISE;
        longest = smaller(pace->longest, larger(step, pace->shortest));
    }
    return smaller(end, now + smaller(larger((end - now) / RISE, pace->shortest), longest));
}

/* The segment without what was lost.
 *
 * In every interval a flow sends what its rates carry in that time, and `catch_up` of its
 * highest rate and `lead_bytes` once, at most, and what a segment carries before it is seen.
 * What is lost goes when the fluid has ended, at the last rate that was seen, or at
 * `capacity`, that of the narrowest link on the way. Earlier segments carried `unseen` bytes
 * that no look could see. */
Segment without_loss(Bucket *bucket, const Segment *seen, double now, int64_t sent,
                     int64_t volume, const Pace *pace, double capacity, double unseen)
{
    Segment s = *seen;
    if (isinf(pace->catch_up))
        return s;
    if (s.rate > 0) {
        bucket->rate = s.rate;
        bucket->highest = larger(bucket->highest, s.rate);
    }
    if (fluid_end(&s, (double)volume) <= s.since)
        s.rate = bucket->rate > 0 ? bucket->rate : capacity;
    if ((double)(volume - sent) > pace->tail) { /* those wait by the sender's own choice */
        double highest = bucket->highest > 0 ? bucket->highest : capacity;
        double reserve = pace->catch_up * highest + unseen;
        bucket->lost = larger(bucket->lost, fluid_at(&s, now) - (double)sent - reserve);
    }
    s.served -= bucket->lost;
    return s;
}

static bool read_entry(const BoardEntry *entry, int64_t *iteration, Segment *s)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        const volatile BoardEntry *e = entry;
        uint64_t ended = __atomic_load_n(&entry->ended, __ATOMIC_ACQUIRE);
        *iteration = e->iteration;
        *s = (Segment){e->served, e->rate, e->since};
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (e->begun == ended) /* no writer came in between */
            return *iteration >= 0;
    }
    return false;
}

/* Return the reading of this host's clock at a run time. */
double wall_of(const Pacing *p, double time)
{
    double since = p->start + time * p->time_scale - p->offset - p->at;
    return p->at + since / (1.0 + p->drift);
}

/* Return the run time of a reading of this host's clock. */
double run_time_of(const Pacing *p, double wall)
{
    double ahead = p->offset + p->drift * (wall - p->at);
    return (wall + ahead - p->start) / p->time_scale;
}

/* Fill in the fluid of a flow, real bytes and wall seconds; false where it has none. A
 * segment of another iteration is of the flow before or after this one: at its rate the
 * sender would spend what is not its own. */
bool segment_of(const Pacing *p, int64_t edge, int64_t iteration, Segment *s)
{
    int64_t found;
    Segment seen;
    if (!p->started || !read_entry(p->board + edge, &found, &seen) || found != iteration)
        return false;
    double rate = seen.rate * p->byte_scale / p->time_scale;
    *s = (Segment){seen.served * p->byte_scale, rate, wall_of(p, seen.since)};
    return true;
}

void load_frame(Sender *s, int64_t iteration, const Buffer *buffers, int64_t count,
                double queued, double notified)
{
    s->iteration = iteration;
    s->buffers = buffers;
    s->left = count;
    s->overhead = buffers[0].size;
    s->volume = 0;
    for (int64_t i = 1; i < count; i++)
        s->volume += buffers[i].size;
    s->offset = s->sent = s->offered = 0;
    s->queued = queued;
    s->notified = notified;
    s->first = s->last = s->end = s->known = s->informed = NAN;
    s->begins = -INFINITY;
    s->has_line = s->obeys = false;
    s->fluid = s->late = 0.0;
    s->fluid_end = s->due = s->next = INFINITY;
    s->bucket = (Bucket){0.0, 0.0, 0.0};
}

/* Add a row, or return false: there is no room. */
bool add_frame(FrameRows *rows, int64_t edge, int64_t iteration, double first, double last,
               int64_t bytes)
{
    if (rows->count >= rows->room)
        return false;
    FrameRow row = {(uint32_t)edge, (uint32_t)iteration, first, last, (uint64_t)bytes};
    rows->row[rows->count++] = row;
    return true;
}

/* Count and note the frame in front, which has left; return the seconds from the end of its
 * fluid until then. A frame without rates has no fluid that it could be late for. */
double finish(Pacing *p, Sender *s, bool shaped)
{
    double lateness = isfinite(s->fluid_end) ? s->end - s->fluid_end : 0.0;
    s->frames++;
    s->payload_bytes += s->volume;
    s->header_bytes += s->overhead;
    add_frame(p->departures, s->edge, s->iteration, s->first, s->last, s->volume);
    if (!shaped)
        return lateness;
    s->late_sends += lateness > LATE;
    s->max_behind = larger(s->max_behind, lateness);
    s->lost_bytes += s->bucket.lost;
    double edge = (double)s->edge, iteration = (double)s->iteration;
    SentRow row = {edge, iteration, s->end, s->queued, s->informed, p->lag};
    p->sent->row[p->sent->count++ % p->sent->room] = row;
    return lateness;
}

static int64_t body_sent(const Sender *s) { return at_least(0, s->sent - s->overhead); }

/* Follow a segment that has begun; return the bytes that others carried unseen.
 *
 * A segment of a time to come takes the place of those before it on the board, however often
 * a sender looks: that it stood still costs it its lateness at most. Without this a flow
 * beside others that began was 20 ms late, with 4 ms unseen. */
static double obey(Sender *s, const Segment *seen, double capacity)
{
    double before = s->obeys ? fluid_at(&s->obeyed, seen->since) : 0.0;
    double unseen = larger(0.0, seen->served - before - capacity * s->late);
    s->obeys = true;
    s->obeyed = *seen;
    s->late = 0.0;
    return unseen;
}

/* Look at the board; return the bytes of the body that may go now. */
static int64_t offered(const Pacing *p, Sender *s, double now)
{
    const Pace *pace = &p->pace;
    Segment seen;
    s->begins = -INFINITY;
    s->has_line = segment_of(p, s->edge, s->iteration, &seen);
    if (!s->has_line)
        return 0;
    if (seen.since != s->known) {
        s->known = seen.since;
        s->informed = now;
        s->max_stale = larger(s->max_stale, now - larger(seen.since, s->queued));
    }
    /* A segment of a time to come says nothing of the time before it: the one that ends a
     * flow would let all of it go at once, 34 ms early in the demo. */
    s->late += larger(0.0, smaller(now, seen.since) - s->due);
    s->begins = seen.since - pace->lead_time;
    s->line = seen;
    double capacity = s->capacity * p->byte_scale / p->time_scale, unseen = 0.0;
    if (s->begins <= now)
        unseen = obey(s, &seen, capacity);
    if (!s->obeys)
        return 0;
    /* A segment between both, of a cut say, may never have been seen: what the one to come
     * has carried by then, the flow has at most until then. */
    Segment fluid = s->obeyed;
    if (s->begins > now && fluid_at(&fluid, now) > seen.served)
        fluid = (Segment){seen.served, 0.0, now};
    int64_t sent = body_sent(s);
    s->fluid = fluid_at(&fluid, now);
    s->fluid_end = fluid_end(&fluid, (double)s->volume);
    s->line = without_loss(&s->bucket, &fluid, now, sent, s->volume, pace, capacity, unseen);
    int64_t limit = allowance(&s->line, now, sent, s->volume, pace);
    /* Who may not catch up all would lose what it holds back. */
    double lead = larger(pace->lead_time * s->line.rate, pace->lead_bytes);
    double least = isinf(pace->catch_up)
                       ? smaller(lead / PARTS_OF_LEAD, (double)(s->volume - sent)) : 1.0;
    return (double)limit < least ? 0 : limit;
}

/* Count what was sent, and say when to look again. */
void plan_look(const Pacing *p, Sender *s, double now)
{
    if (s->offered > 0)
        s->max_lead = larger(s->max_lead, (double)body_sent(s) - s->fluid);
    s->offered = 0;
    double segment = s->has_line ? s->known : -INFINITY;
    bool sending = (double)(s->volume - body_sent(s)) > p->pace.tail;
    s->due = next_look(s->has_line ? &s->line : NULL, now, s->volume, &p->pace,
                       s->notified > segment, sending);
    if (s->begins > now)
        s->due = smaller(s->due, s->begins);
}

/* Send what the fluid allows now. Only who is paced says when the next ring is due: a time
 * that has passed counts from now, or that ring would seem late. */
int32_t look(const Pacing *p, Sender *s, double now)
{
    s->outcome = PACED;
    s->offered = offered(p, s, now);
    if (s->offered > 0)
        s->outcome = s->fd < 0 ? OFFERS : send_bytes(s, s->offered);
    if (s->outcome != OFFERS)
        plan_look(p, s, now);
    s->next = s->outcome == PACED ? larger(s->due, now) : INFINITY;
    return s->outcome;
}

/* Look at all that are due, or will be soon, as the alarm rings; return how many ask for
 * attention. */
int64_t ring(Pacing *p, double now)
{
    p->lag = now - p->due;
    p->lag_sum += p->lag;
    p->max_lag = larger(p->max_lag, p->lag);
    p->rings++;
    p->due = INFINITY; /* the alarm is spent */
    int64_t some = 0;
    double soon = now + p->pace.shortest / 2;
    for (int64_t i = 0; i < p->count; i++)
        if (p->active[i]->next <= soon && look(p, p->active[i], now) != PACED)
            p->attention[some++] = p->active[i]->edge;
    return some;
}

double soonest(const Pacing *p)
{
    double due = INFINITY;
    for (int64_t i = 0; i < p->count; i++)
        due = smaller(due, p->active[i]->next);
    return due;
}

void drop(Pacing *p, const Sender *s)
{
    for (int64_t i = 0; i < p->count; i++)
        if (p->active[i] == s) {
            p->count--;
            memmove(p->active + i, p->active + i + 1,
                    (size_t)(p->count - i) * sizeof *p->active);
            return;
        }
}
