/* Payloads of timed tasks: windows into a ring of random bytes. */
#include "inline.h"

/* Return a number below `period` for (seed, edge, iteration), as `stream_key` of
 * emu/host/stream_key.py makes its key. */
int64_t window_start(uint64_t seed, int64_t edge, int64_t iteration, int64_t period)
{
    const uint64_t parts[] = {seed, (uint64_t)edge, (uint64_t)iteration};
    uint64_t key = 0;
    for (int i = 0; i < 3; i++) {
        key += parts[i] + 0x9e3779b97f4a7c15u;
        key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9u;
        key = (key ^ key >> 27) * 0x94d049bb133111ebu;
        key ^= key >> 31;
    }
    return (int64_t)(key % (uint64_t)period);
}

/* Return how many bytes equal those of a ring from `start` on, in whole blocks of `block`
 * up to the first that differs. */
int64_t count_equal(const uint8_t *bytes, int64_t size, int64_t block,
                    const uint8_t *ring, int64_t period, int64_t start)
{
    int64_t count = 0;
    while (count < size) {
        int64_t place = (start + count) % period;
        int64_t length = at_most(at_most(block - count % block, size - count), period - place);
        if (memcmp(bytes + count, ring + place, (size_t)length) != 0)
            return count - count % block;
        count += length;
    }
    return size;
}

/* Begin with the body of an iteration. */
void expect_body(Expected *e, int64_t iteration)
{
    e->iteration = iteration + e->first;
    e->start = window_start(e->seed, e->edge, e->iteration, e->period);
    e->fault = -1;
}

/* Compare the next bytes of the body, of which `came` came before them. */
void compare(Expected *e, int64_t came, const uint8_t *bytes, int64_t size)
{
    int64_t equal = count_equal(bytes, size, e->block, e->ring, e->period, e->start + came);
    if (equal < size && e->fault < 0)
        e->fault = came + equal;
}
