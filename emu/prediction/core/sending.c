/* Bytes of a frame to the kernel: a call each, by scatter-gather, nothing copied. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#ifdef __linux__
#include <sys/timerfd.h>
#endif
#include "clock.h"
#include "inline.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores the signal */
#endif

/* Fill in views of the next `bytes` at most; return how many, of BUFFERS. */
int64_t gather(const Sender *s, int64_t bytes, Buffer *views)
{
    int64_t count = 0, offset = s->offset;
    for (; count < BUFFERS && count < s->left && bytes > 0; count++) {
        int64_t size = at_most(s->buffers[count].size - offset, bytes);
        views[count] = (Buffer){s->buffers[count].start + offset, size};
        bytes -= size;
        offset = 0;
    }
    return count;
}

/* Note that so many bytes have left, in a call before which `last` was read: not after it,
 * as the kernel may have sent them by then. */
void on_sent(Sender *s, int64_t bytes)
{
    if (isnan(s->first))
        s->first = s->last;
    s->sent += bytes;
    s->offset += bytes;
    while (s->left > 0 && s->offset >= s->buffers->size) {
        s->offset -= s->buffers->size;
        s->buffers++;
        s->left--;
    }
}

static ssize_t send_views(int fd, const Buffer *views, int64_t count)
{
    struct iovec of_call[BUFFERS];
    for (int64_t i = 0; i < count; i++)
        of_call[i] = (struct iovec){(char *)views[i].start, (size_t)views[i].size};
    struct msghdr message = {.msg_iov = of_call};
    message.msg_iovlen = (unsigned)count;
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Send up to so many bytes of the body, and what comes before it. */
int32_t send_bytes(Sender *s, int64_t bytes)
{
    bytes += at_least(0, s->overhead - s->sent);
    while (bytes > 0 && s->left > 0) {
        Buffer views[BUFFERS];
        int64_t some = gather(s, at_most(bytes, BURST), views);
        s->last = monotonic();
        ssize_t count = send_views(s->fd, views, some);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            bool full = errno == EAGAIN || errno == EWOULDBLOCK;
            s->error = errno;
            s->blocked += full;
            return full ? BLOCKED : BROKEN;
        }
        on_sent(s, count);
        bytes -= count;
    }
    if (s->left > 0)
        return PACED;
    s->end = monotonic();
    return SENT;
}

/* Have a timerfd expire at a wall time, never where that is infinite; false where none could
 * be set. */
bool set_timer(int32_t fd, double wall)
{
#ifdef __linux__
    if (fd < 0)
        return false;
    struct itimerspec setting = {0}; /* of zeros: it never expires */
    if (wall < INFINITY) {
        int64_t nanoseconds = at_least(1, (int64_t)llround(wall * 1e9));
        setting.it_value.tv_sec = nanoseconds / 1000000000;
        setting.it_value.tv_nsec = nanoseconds % 1000000000;
    }
    return timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL) == 0;
#else
    (void)fd, (void)wall;
    return false;
#endif
}

/* One timer for all edges: a system call per edge and look would cost more than the payload
 * does, and a setting that changes nothing is one saved. Linear in the edges that send now,
 * which are few. Return true where the owner has to set its own alarm. */
bool set_alarm(Pacing *p)
{
    double due = soonest(p);
    if (due == p->due)
        return false;
    p->due = due;
    return !set_timer(p->alarm, due);
}
