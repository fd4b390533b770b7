/* Memory for payloads, by size class: what is handed out is counted here, and is Python's. */
#include "inline.h"

enum { LEAST = 4096 };

/* Return the length of the buffer that serves `size` bytes: four classes per power of two
 * waste at most a quarter. */
int64_t size_class(int64_t size)
{
    if (size <= LEAST)
        return LEAST;
    int64_t step = 1;
    while (step * 8 < size)
        step *= 2;
    return (size + step - 1) / step * step;
}

/* Count the buffer of so many bytes as in use; false where that is more than may be. */
bool lend(PayloadMemory *m, int64_t size)
{
    int64_t length = size_class(size);
    if (m->in_use + length > m->limit)
        return false;
    m->in_use += length;
    m->high_water = at_least(m->high_water, m->in_use);
    return true;
}

/* Count the buffer of so many bytes as free. */
void take_back(PayloadMemory *m, int64_t size) { m->in_use -= size_class(size); }
