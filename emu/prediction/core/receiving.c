/* Bytes of connections from the kernel, and when they came. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include "clock.h"
#include "inline.h"

/* Seconds from note to reading within which nothing was waited for: a segment that is sent
 * again takes a round trip, and only then is the kernel asked (0.8 us). */
#define PROMPT 1e-3
/* Seconds between two readings of a clock within which the core was ours. */
#define TIGHT 20e-6
enum { TRIES = 5 };
/* Bytes of a paced body for which the kernel wakes its reader, where as many miss:
 * `testbed_products` at time scale 3 took 3.7 CPU seconds per GB and not 5.0; and bytes for
 * which that is not worth two calls. */
enum { AT_ONCE = 1 << 18, FEW = 1 << 16 };

/* Return when the newest byte could be read in order, by its note and by TCP_INFO.
 *
 * A segment behind a lost one waits in the kernel until that is sent again, and keeps its
 * own, older note: flows ended 20 ms (a retransmission) to 250 ms (a timeout) before they
 * could be read. Of the time at which a segment came in order, the kernel keeps the tick, and
 * ticks of a busy host come late: of 4 ms, by 2.4. A late tick moves the coarse clock by one
 * more than the count behind `quiet`. So the answer is up to 2.4 ms early, and up to three
 * ticks late (9.3 ms seen). */
static double when_in_order(Arrivals *a, double note, const Disorder *d)
{
    if (d->ahead == 0)
        return note;
    double begin = d->clock - d->quiet;
    bool is_new = d->ahead != a->ahead;
    a->ahead = d->ahead;
    /* A note within that tick may be of the segment that filled the hole. */
    bool is_of_last = note >= begin && !is_new;
    return is_of_last ? note : larger(note, begin + 2 * d->tick);
}

/* Note bytes that were read at `now`, their newest segment `age` seconds after it came;
 * return when the last of them came, never falling from call to call. Only the age of a note
 * is used: a clock that is set meanwhile can do no worse than count the time of reading, or
 * of the call before. `d` may be NULL. */
double note_arrival(Arrivals *a, double now, double age, const Disorder *d)
{
    double note = now - age;
    double arrival = d == NULL ? note : smaller(when_in_order(a, note, d), now);
    /* What several calls read may have waited at one time, which counts once: 0.08 s more
     * than a flow took was noted so, and its run not trusted. */
    a->hole += larger(arrival - larger(note, a->last), 0.0);
    a->last = smaller(larger(arrival, a->last), now);
    a->delay = now - a->last;
    a->unread += a->delay;
    return a->last;
}

#if defined(__linux__) && defined(SO_TIMESTAMPNS)
/* Return the age of a note at `now`, which is read beside the note's clock: a process that
 * loses its core between the two would count what came as older, or younger, by as long (on
 * two cores with 12 ready processes by over 1 ms for 12 of some 120 frames). So they are
 * read again until nothing came in between. */
static double age_of(const struct timespec *note, double *now)
{
    struct timespec real;
    for (int try = 0; try < TRIES; try++) {
        double start = monotonic();
        clock_gettime(CLOCK_REALTIME, &real);
        *now = monotonic();
        if (*now - start < TIGHT)
            break;
    }
    if (note->tv_sec == 0)
        return 0.0;
    int64_t seconds = (int64_t)real.tv_sec - note->tv_sec;
    return (double)seconds + 1e-9 * (double)(real.tv_nsec - note->tv_nsec);
}

static void find_note(struct msghdr *message, struct timespec *note)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS
            && c->cmsg_len == CMSG_LEN(sizeof *note))
            memcpy(note, CMSG_DATA(c), sizeof *note);
}

/* Have the kernel note when bytes come; false where it does not. */
bool ask_for_stamps(int32_t fd)
{
    int on = 1;
    return setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) == 0;
}
#else
bool ask_for_stamps(int32_t fd)
{
    (void)fd;
    return false;
}
#endif

/* Receive up to `size` bytes from a socket that does not block, and note when the last of
 * them came; return how many, minus errno where that failed. A note costs 0.6 us. */
int64_t receive_bytes(int32_t fd, uint8_t *start, int64_t size, Arrivals *a)
{
    union {
        struct cmsghdr header; /* for its alignment */
        char room[CMSG_SPACE(sizeof(struct timespec))];
    } notes;
    struct iovec part = {start, (size_t)size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (a->stamped) {
        message.msg_control = notes.room;
        message.msg_controllen = sizeof notes.room;
    }
    ssize_t count = recvmsg(fd, &message, MSG_DONTWAIT);
    if (count < 0)
        return -errno;

    double now = monotonic(), age = 0.0;
    Disorder disorder;
    bool is_known = false;
#if defined(__linux__) && defined(SO_TIMESTAMPNS)
    struct timespec note = {0};
    find_note(&message, &note);
    age = age_of(&note, &now);
    is_known = age > PROMPT && read_disorder(fd, &disorder);
#endif
    note_arrival(a, now, age, is_known ? &disorder : NULL);
    return count;
}

/* Have the kernel wake the owner for much of a paced body, or its rest. Where bursts are
 * watched every portion is to have a time of its own. */
static void await_more(Receiver *r)
{
    int64_t left = missing(r);
    int32_t least = r->least;
    if (left > FEW && isinf(r->rate))
        least = (int32_t)at_most(left, AT_ONCE);
    else if (left < least)
        least = (int32_t)at_least(left, 1);
    if (least == r->least)
        return;
    setsockopt(r->fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least);
    r->least = least;
}

/* Say what came of the bytes so far, and receive until something did. */
int32_t receive(Receiver *r)
{
    if (r->held != WAITS) {
        int32_t held = r->held;
        r->held = WAITS;
        return held;
    }
    for (;;) {
        int32_t outcome = take_frame(r);
        if (outcome == HEADED && r->expected != NULL) {
            if (!let_pass(r))
                return NO_ROOM;
            continue;
        }
        if (outcome != WAITS || r->fd < 0)
            return outcome;
        if (r->drained) {
            r->drained = false;
            r->turn = 0;
            await_more(r);
            return WAITS;
        }

        Span span = next_room(r);
        int64_t count = receive_bytes(r->fd, span.start, span.size, r->arrivals);
        if (count == 0)
            return ENDED;
        bool has_nothing = count == -EAGAIN || count == -EWOULDBLOCK || count == -EINTR;
        if (count < 0 && !has_nothing) {
            r->error = (int32_t)-count;
            return FAILED;
        }
        if (count > 0) {
            on_bytes(r, count, r->arrivals->last);
            r->turn += count;
        }
        r->drained = count < span.size || r->turn >= WINDOW;
    }
}
