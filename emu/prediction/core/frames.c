/* Frames of a data connection, from the bytes that come over it.
 *
 * Who owns a receiver fills `next_room`, says how much came, and does what `take_frame` says.
 * A header counts as plain as `encode_data` writes most of them; any other is left to its
 * owner, who accepts it or has the words to refuse it. No peer can have memory taken for a
 * length that was not checked. */
#include "inline.h"
#include "wire.h"

static const uint8_t MAGIC[] = "emuF";
/* Bytes of one call where bursts are watched: the kernel notes when the last of them came,
 * and no more. With a megabyte at a time a burst of 500 kB was one call. */
enum { PORTION = 1 << 16 };
#define MOST ((uint64_t)1 << 62) /* of edges and iterations */

static uint64_t big_endian(const uint8_t *bytes, int64_t size)
{
    uint64_t number = 0;
    for (int64_t i = 0; i < size; i++)
        number = number << 8 | bytes[i];
    return number;
}

/* What is left of a header to read; `plain` turns false for good. */
typedef struct {
    const uint8_t *next;
    const uint8_t *end;
    bool plain;
} Packed;

static const uint8_t *read_bytes(Packed *p, int64_t size)
{
    static const uint8_t none[NAME];
    p->plain = p->plain && p->end - p->next >= size;
    if (!p->plain)
        return none;
    p->next += size;
    return p->next - size;
}

static void expect_bytes(Packed *p, const char *bytes)
{
    int64_t size = (int64_t)strlen(bytes);
    p->plain = memcmp(read_bytes(p, size), bytes, (size_t)size) == 0 && p->plain;
}

/* Return a number up to `most` as msgpack has it. */
static int64_t read_number(Packed *p, uint64_t most)
{
    uint64_t number = *read_bytes(p, 1);
    if (number >= 0xcc && number <= 0xcf) {
        int64_t size = (int64_t)1 << (number - 0xcc);
        number = big_endian(read_bytes(p, size), size);
    } else if (number >= 0x80) {
        p->plain = false;
    }
    p->plain = p->plain && number <= most;
    return p->plain ? (int64_t)number : 0;
}

/* Return how many entries follow, `most` at most, of a list or text that msgpack counts in
 * its first byte. */
static int32_t read_count(Packed *p, uint8_t kind, int32_t most)
{
    int32_t count = *read_bytes(p, 1) - kind;
    p->plain = p->plain && count >= 0 && count <= most;
    return p->plain ? count : 0;
}

static bool is_type(const char *type)
{
    static const char types[] = "b1i1i2i4i8u1u2u4u8f2f4f8";
    for (const char *known = types; *known != '\0'; known += 2)
        if (memcmp(known, type, 2) == 0)
            return true;
    return false;
}

/* Read a tensor; return its bytes. */
static int64_t read_tensor(Packed *p, Tensor *t, int64_t limit)
{
    expect_bytes(p, "\x93");
    t->size = read_count(p, 0xa0, NAME);
    memcpy(t->name, read_bytes(p, t->size), (size_t)t->size);
    for (int32_t i = 0; i < t->size; i++)
        p->plain = p->plain && (uint8_t)t->name[i] < 0x80;
    expect_bytes(p, "\xa2");
    memcpy(t->type, read_bytes(p, 2), 2);
    p->plain = p->plain && is_type(t->type);

    t->dimensions = read_count(p, 0x90, DIMENSIONS);
    int64_t items = 1, largest = t->type[1] - '0'; /* zeros count as ones: numpy needs it */
    for (int32_t i = 0; i < t->dimensions; i++) {
        t->shape[i] = read_number(p, (uint64_t)limit);
        items *= t->shape[i];
        largest *= at_least(t->shape[i], 1);
        p->plain = p->plain && largest <= limit;
        if (!p->plain)
            return 0;
    }
    return items * (t->type[1] - '0');
}

static bool has_name_before(const Receiver *r, int32_t place)
{
    const Tensor *t = r->tensor + place;
    for (int32_t i = 0; i < place; i++)
        if (r->tensor[i].size == t->size
            && memcmp(r->tensor[i].name, t->name, (size_t)t->size) == 0)
            return true;
    return false;
}

/* Fill in what a plain header says; return false where it is not plain. */
bool read_header(Receiver *r, const uint8_t *packed, int64_t size)
{
    Packed p = {packed, packed + size, true};
    expect_bytes(&p, "\x84\xa4" "edge");
    r->edge = read_number(&p, MOST);
    expect_bytes(&p, "\xa9" "iteration");
    r->iteration = read_number(&p, MOST);
    expect_bytes(&p, "\xa6" "shaped");
    uint8_t shaped = *read_bytes(&p, 1);
    p.plain = p.plain && (shaped == 0xc2 || shaped == 0xc3);
    r->shaped = shaped == 0xc3;
    expect_bytes(&p, "\xa7" "tensors");
    r->tensors = read_count(&p, 0x90, TENSORS);

    int64_t bytes = 0;
    for (int32_t i = 0; i < r->tensors && p.plain; i++) {
        Tensor *t = r->tensor + i;
        bytes += read_tensor(&p, t, r->body_limit);
        bool rises = i > 0 && t->type[1] > t[-1].type[1];
        p.plain = p.plain && !rises && !has_name_before(r, i);
    }
    return p.plain && p.next == p.end && bytes == r->length;
}

/* Read the lengths of a frame; false where they are not to be believed. */
static bool read_prefix(Receiver *r, const uint8_t *prefix)
{
    r->header = (int64_t)big_endian(prefix + 8, 4);
    r->length = (int64_t)big_endian(prefix + 12, 4);
    return memcmp(prefix, MAGIC, 4) == 0 && big_endian(prefix + 4, 2) == VERSION
           && big_endian(prefix + 6, 2) == DATA
           && big_endian(prefix + 16, 4) == checksum(0, prefix, 16)
           && r->header >= SUM_BYTES && r->header <= r->header_limit
           && r->length <= r->body_limit;
}

/* Say what came of the bytes so far. */
int32_t take_frame(Receiver *r)
{
    const uint8_t *next = r->heads + r->begin;
    if (r->part == AT_PREFIX) {
        if (r->end - r->begin < PREFIX_BYTES)
            return WAITS;
        if (!read_prefix(r, next))
            return ODD_PREFIX;
        r->begin += PREFIX_BYTES;
        next += PREFIX_BYTES;
        r->part = AT_HEADER;
    }
    if (r->part == AT_HEADER) {
        if (r->end - r->begin < r->header)
            return WAITS;
        r->first = r->wall;
        r->stated = (uint32_t)big_endian(next, SUM_BYTES);
        r->checksum = checksum(0, next + SUM_BYTES, r->header - SUM_BYTES);
        r->begin += r->header;
        r->filled = 0;
        r->part = AT_BODY;
        bool is_plain = read_header(r, next + SUM_BYTES, r->header - SUM_BYTES);
        return is_plain ? HEADED : ODD_HEADER;
    }
    if (r->part == AT_BODY)
        return HEADED;
    if (r->filled < r->length)
        return WAITS;
    r->part = AT_PREFIX;
    return ARRIVED;
}

/* Take bytes of the body while they are warm. */
static void take_part(Receiver *r, const uint8_t *bytes, int64_t size)
{
    r->checksum = checksum(r->checksum, bytes, size);
    if (r->passes)
        compare(r->expected, r->filled, bytes, size);
    r->filled += size;
}

/* Take the first bytes of the body, which came with its header. */
static void begin_body(Receiver *r, uint8_t *memory)
{
    const uint8_t *bytes = r->heads + r->begin;
    int64_t count = at_most(r->length, r->end - r->begin);
    if (count > 0 && !r->passes)
        memcpy(memory, bytes, (size_t)count);
    r->begin += count;
    r->body = memory;
    r->filled = 0;
    r->part = IN_BODY;
    take_part(r, bytes, count);
}

/* Take memory for the body; false where it is of another length. */
bool give_body(Receiver *r, uint8_t *body, int64_t size)
{
    if (r->part != AT_BODY || size != r->length)
        return false;
    r->passes = false;
    begin_body(r, body);
    return true;
}

/* Let the body pass through the window: it is compared with what is expected, and counts as
 * memory in use, which it is on its way. False where that has no room for it. */
bool let_pass(Receiver *r)
{
    if (r->part != AT_BODY || r->expected == NULL
        || (r->memory != NULL && r->length > 0 && !lend(r->memory, r->length)))
        return false;
    r->passes = true;
    expect_body(r->expected, r->iteration);
    begin_body(r, r->window);
    return true;
}

/* Let go of a body that passed, or has begun to, and that no one counts but `memory`. */
void give_up(Receiver *r)
{
    if (r->passes && r->memory != NULL && r->length > 0)
        take_back(r->memory, r->length);
    r->passes = false;
}

/* True where a plain header has one tensor, which has the name of expected ones. */
bool has_bytes_alone(const Receiver *r)
{
    const Tensor *t = r->tensor;
    return r->tensors == 1 && t->size == 5 && memcmp(t->name, "bytes", 5) == 0;
}

/* Return the memory that the next bytes belong in. */
Span next_room(Receiver *r)
{
    if (r->part == IN_BODY) {
        int64_t most = isinf(r->rate) ? WINDOW : PORTION;
        if (r->passes)
            most = at_most(most, r->window_room);
        uint8_t *begin = r->passes ? r->body : r->body + r->filled;
        return (Span){begin, at_most(r->length - r->filled, most)};
    }
    r->end -= r->begin;
    memmove(r->heads, r->heads + r->begin, (size_t)r->end);
    r->begin = 0;
    int64_t due = r->part == AT_PREFIX ? PREFIX_BYTES : r->header;
    int64_t room = at_most(at_least(due, HEADS), r->room);
    return (Span){r->heads + r->end, room - r->end};
}

/* Count a burst: how long its first bytes took is not known. Intervals begin at the time of
 * one call and end at that of another. */
static void note_burst(Receiver *r, int64_t count)
{
    double level = 0.0;
    if (!isnan(r->noted)) {
        double fluid = r->rate * (r->wall - r->noted);
        level = larger(r->level, 0.0) + (double)count - fluid;
        r->burst = larger(larger(r->burst, 0.0), level);
    }
    r->noted = r->wall;
    r->level = level;
}

/* Note that so many bytes were filled in, the last of which came at `wall`; false where
 * fewer were offered. */
bool on_bytes(Receiver *r, int64_t count, double wall)
{
    if (count <= 0 || count > next_room(r).size)
        return false;
    r->wall = wall;
    if (r->part != IN_BODY) {
        r->end += count;
        return true;
    }
    if (!isinf(r->rate)) /* headers count for nothing: rates are of payload */
        note_burst(r, count);
    take_part(r, r->passes ? r->body : r->body + r->filled, count);
    return true;
}

/* Return the bytes that are still to come of a paced body that has begun, else 0. */
int64_t missing(const Receiver *r)
{
    return r->part == IN_BODY && r->shaped ? r->length - r->filled : 0;
}
