/* Arrays taken one after the other out of memory that Python owns.
 *
 * A search makes ten thousands of layouts and states: in one room that costs nothing but
 * the zeros. How much a call needs is measured by taking it out of a room that begins
 * at 0, which holds nothing and is never written to. */

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
enum { GAP = 64 }; /* behind every array, so that what writes there is found */
#define POISON(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define UNPOISON(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
enum { GAP = 0 };
#define POISON(at, bytes) ((void)0)
#define UNPOISON(at, bytes) ((void)0)
#endif

static inline bool measures(const Room *room) { return room->end == NULL; }

static inline void *taken(Room *room, int64_t count, int64_t bytes, bool zero)
{
    size_t size = ((size_t)(count * bytes) + 7) & ~(size_t)7;
    char *at = room->at;
    room->at = (char *)((uintptr_t)at + size + GAP);
    if (measures(room))
        return at;
    UNPOISON(at, size);
    POISON(at + count * bytes, size - (size_t)(count * bytes) + GAP);
    if (zero)
        memset(at, 0, (size_t)(count * bytes));
    return at;
}

static inline int64_t *integers(Room *room, int64_t count)
{
    return taken(room, count, sizeof(int64_t), true);
}

static inline double *numbers(Room *room, int64_t count)
{
    return taken(room, count, sizeof(double), true);
}

static inline bool *marks(Room *room, int64_t count)
{
    return taken(room, count, sizeof(bool), true);
}

/* Numbers that are all `value`. */
static inline double *filled(Room *room, int64_t count, double value)
{
    double *array = numbers(room, count);
    for (int64_t i = 0; i < count && !measures(room); i++)
        array[i] = value;
    return array;
}

static inline int64_t *filled_integers(Room *room, int64_t count, int64_t value)
{
    int64_t *array = integers(room, count);
    for (int64_t i = 0; i < count && !measures(room); i++)
        array[i] = value;
    return array;
}

/* What is in `from` to begin with, numbers or integers. */
static inline void *copied(Room *room, int64_t count, const void *from)
{
    void *array = integers(room, count);
    if (count > 0 && !measures(room))
        memcpy(array, from, (size_t)count * sizeof(int64_t));
    return array;
}
