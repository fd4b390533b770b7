/* Bytes from one process to another through memory that both have: one end writes, one reads.
 *
 * In memory the ring has three counters and its bytes. Nobody trusts what the other end has
 * written there: each keeps its own place, and copies before it looks. What is written in one
 * call is seen whole, or not at all if its writer dies in it. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <unistd.h>
#include "inline.h"

typedef _Atomic uint64_t Count;

/* Each in a cache line of its own: bytes written, bytes read, and whether the writer waits. */
static Count *written_of(const RingEnd *ring) { return (Count *)(void *)ring->memory; }

static Count *read_of(const RingEnd *ring) { return (Count *)(void *)(ring->memory + 64); }

static Count *stalled_of(const RingEnd *ring) { return (Count *)(void *)(ring->memory + 128); }

/* Wake the other end. A pipe that is full has woken it already. */
static void wake(const RingEnd *ring)
{
    char byte = 0;
    ssize_t count = write(ring->wake, &byte, sizeof byte);
    (void)count;
}

/* Return how many bytes wait for their reader, more than the size where that cannot be. */
static uint64_t held_by_writer(const RingEnd *ring)
{
    return ring->passed - atomic_load(read_of(ring));
}

static void copy_in(const RingEnd *ring, const uint8_t *bytes, int64_t size)
{
    int64_t begin = (int64_t)(ring->passed % (uint64_t)ring->size);
    int64_t straight = at_most(size, ring->size - begin);
    memcpy(ring->memory + RING_HEAD + begin, bytes, (size_t)straight);
    memcpy(ring->memory + RING_HEAD, bytes + straight, (size_t)(size - straight));
}

static void copy_out(const RingEnd *ring, uint8_t *bytes, int64_t size)
{
    int64_t begin = (int64_t)(ring->passed % (uint64_t)ring->size);
    int64_t straight = at_most(size, ring->size - begin);
    memcpy(bytes, ring->memory + RING_HEAD + begin, (size_t)straight);
    memcpy(bytes + straight, ring->memory + RING_HEAD, (size_t)(size - straight));
}

/* Write all of some bytes, and wake nobody: see `wake_reader`. Where they have no room nothing is
 * written, and the reader wakes this end when it has read on. */
int32_t fill_ring(RingEnd *ring, const uint8_t *bytes, int64_t size)
{
    uint64_t most = (uint64_t)ring->size;
    uint64_t held = held_by_writer(ring);
    if (held <= most && (uint64_t)size > most - held) {
        atomic_store(stalled_of(ring), 1);
        held = held_by_writer(ring); /* it may have read before it could see that */
    }
    if (held > most)
        return RING_BROKEN;
    if ((uint64_t)size > most - held)
        return RING_FULL;

    copy_in(ring, bytes, size);
    uint64_t before = ring->passed;
    ring->passed += (uint64_t)size;
    atomic_store(written_of(ring), ring->passed);
    /* A reader that has not read all before it looks once more. */
    ring->is_asleep |= atomic_load(read_of(ring)) == before;
    return RING_PASSED;
}

/* Wake the reader for what was written, if it may sleep. */
void wake_reader(RingEnd *ring)
{
    if (ring->is_asleep)
        wake(ring);
    ring->is_asleep = false;
}

/* Write as `fill_ring` does, and wake the reader. */
int32_t write_ring(RingEnd *ring, const uint8_t *bytes, int64_t size)
{
    int32_t outcome = fill_ring(ring, bytes, size);
    wake_reader(ring);
    return outcome;
}

/* Read what there is, of `size` bytes at most; return how many bytes, 0 where all is read, and
 * RING_BROKEN where more are there than can be. To be called until it returns 0. */
int64_t read_ring(RingEnd *ring, uint8_t *bytes)
{
    uint64_t held = atomic_load(written_of(ring)) - ring->passed;
    if (held > (uint64_t)ring->size)
        return RING_BROKEN;
    if (held == 0)
        return 0;
    copy_out(ring, bytes, (int64_t)held);
    ring->passed += held;
    atomic_store(read_of(ring), ring->passed);
    if (atomic_exchange(stalled_of(ring), 0) != 0)
        wake(ring);
    return (int64_t)held;
}
