/* Payloads of timed tasks: windows into a ring of random bytes. */
#include "inline.h"

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
