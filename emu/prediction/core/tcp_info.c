/* Counts that the kernel keeps of a connection: TCP_INFO of Linux.
 *
 * Libraries know less of struct tcp_info than kernels do: so it is read by its offsets
 * (include/uapi/linux/tcp.h, as of Linux 6.7; kernels before that fill less of it, and count
 * no timeouts). */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include "clock.h"
#include "inline.h"

enum {
    INFO_BYTES = 248,
    QUIET = 52,        /* milliseconds since data came in order */
    OUT_OF_ORDER = 224 /* segments that came ahead of one that was missing, since 5.4 */
};

#ifdef __linux__
static bool read_info(int32_t fd, uint8_t *info)
{
    socklen_t size = INFO_BYTES;
    memset(info, 0, INFO_BYTES);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &size) == 0
           && size >= OUT_OF_ORDER + sizeof(uint32_t);
}

static double seconds(struct timespec t) { return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }

/* Say what came to a socket out of order; false where the kernel does not. */
bool read_disorder(int32_t fd, Disorder *d)
{
    uint8_t info[INFO_BYTES];
    if (!read_info(fd, info))
        return false;
    uint32_t quiet, ahead;
    memcpy(&quiet, info + QUIET, sizeof quiet);
    memcpy(&ahead, info + OUT_OF_ORDER, sizeof ahead);
    struct timespec tick, now;
    clock_getres(CLOCK_MONOTONIC_COARSE, &tick);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    *d = (Disorder){ahead, 1e-3 * quiet, seconds(now), seconds(tick)};
    return true;
}

/* Write a row of STATE_BYTES: which flow, then the fields of CONNECTION_ROWS in their order;
 * false where the kernel says nothing. */
bool read_state(int32_t fd, uint32_t edge, uint32_t iteration, uint8_t *row)
{
    static const struct {
        int16_t offset, size;
    } fields[] = {{8, 4}, {16, 4}, {68, 4}, {80, 4}, {100, 4}, {148, 4},
                  {168, 8}, {176, 8}, {184, 8}, {228, 4}, {240, 2}, {244, 4}};
    uint8_t info[INFO_BYTES];
    if (!read_info(fd, info))
        return false;
    memcpy(row, &edge, sizeof edge);
    memcpy(row + sizeof edge, &iteration, sizeof iteration);
    uint8_t *next = row + sizeof edge + sizeof iteration;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        memcpy(next, info + fields[i].offset, (size_t)fields[i].size);
        next += fields[i].size;
    }
    return true;
}
#else
bool read_disorder(int32_t fd, Disorder *d)
{
    (void)fd, (void)d;
    return false;
}

bool read_state(int32_t fd, uint32_t edge, uint32_t iteration, uint8_t *row)
{
    (void)fd, (void)edge, (void)iteration, (void)row;
    return false;
}
#endif
