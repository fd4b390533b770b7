/* What comes before the body of a frame of one tensor of bytes, as `encode_data` of
 * emu/emulation/wire/encoding.py writes it. */
#include "inline.h"
#include "wire.h"

static uint8_t *put_text(uint8_t *next, const char *text)
{
    size_t size = strlen(text);
    memcpy(next, text, size);
    return next + size;
}

static uint8_t *put_big_endian(uint8_t *next, uint64_t number, int size)
{
    for (int i = 0; i < size; i++)
        next[i] = (uint8_t)(number >> 8 * (size - 1 - i));
    return next + size;
}

/* Write a number in the fewest bytes that msgpack has for it. */
static uint8_t *put_number(uint8_t *next, uint64_t number)
{
    if (number < 0x80)
        return put_big_endian(next, number, 1);
    int kind = number <= UINT8_MAX ? 0 : number <= UINT16_MAX ? 1 : number <= UINT32_MAX ? 2 : 3;
    *next = (uint8_t)(0xcc + kind);
    return put_big_endian(next + 1, number, 1 << kind);
}

/* Write prefix, checksum and header to `head`, of HEAD bytes; return how many they are. */
int64_t write_head(uint8_t *head, int64_t edge, int64_t iteration, bool shaped,
                   const uint8_t *body, int64_t size)
{
    uint8_t *sum = head + PREFIX_BYTES, *header = sum + SUM_BYTES;
    uint8_t *next = put_text(header, "\x84\xa4" "edge");
    next = put_number(next, (uint64_t)edge);
    next = put_number(put_text(next, "\xa9" "iteration"), (uint64_t)iteration);
    next = put_text(next, "\xa6" "shaped");
    *next++ = shaped ? 0xc3 : 0xc2;
    next = put_text(next, "\xa7" "tensors\x91\x93\xa5" "bytes\xa2u1\x91");
    next = put_number(next, (uint64_t)size);

    uint32_t of_frame = checksum(checksum(0, header, next - header), body, size);
    put_big_endian(sum, of_frame, SUM_BYTES);

    uint8_t *prefix = put_text(head, "emuF");
    prefix = put_big_endian(prefix, VERSION, 2);
    prefix = put_big_endian(prefix, DATA, 2);
    prefix = put_big_endian(prefix, (uint64_t)(next - sum), 4);
    prefix = put_big_endian(prefix, (uint64_t)size, 4);
    put_big_endian(prefix, checksum(0, head, prefix - head), 4);
    return next - head;
}
