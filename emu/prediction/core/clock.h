/* The clock by which senders and receivers of a host go. */
#pragma once
#include <time.h>

/* Return seconds as Python's time.monotonic reads them. */
static inline double monotonic(void)
{
    struct timespec t;
#ifdef __APPLE__
    clock_gettime(CLOCK_UPTIME_RAW, &t);
#else
    clock_gettime(CLOCK_MONOTONIC, &t);
#endif
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
