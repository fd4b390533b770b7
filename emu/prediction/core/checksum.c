/* CRC-32 of zlib: of frames, as they leave and as they come. */
#include "inline.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WITH_FOLDS __attribute__((target("pclmul,sse4.1")))
#define WITH_WIDE_FOLDS __attribute__((target("pclmul,sse4.1,avx2,vpclmulqdq")))
/* Bytes of a lane; from how many on folding pays; and from how many on two lanes at once. */
enum { LANE = 16, FOLDS = 4 * LANE, WIDE_FOLDS = 16 * LANE };

static __m128i load(const uint8_t *bytes)
{
    return _mm_loadu_si128((const __m128i *)bytes);
}

/* Fold a lane into what comes behind it, as far as the factors say: x^(bits + 32) and
 * x^(bits - 32), modulo the polynomial. */
WITH_FOLDS static __m128i fold(__m128i lane, __m128i factors, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(lane, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Return the remainder of a lane: Barrett's reduction of what folding has left. */
WITH_FOLDS static uint32_t reduce(__m128i lane, __m128i by_lane)
{
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i by_word = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i quotient = _mm_set_epi64x(0x1f7011641, 0x1db710641);

    __m128i high = _mm_clmulepi64_si128(lane, by_lane, 0x10);
    lane = _mm_xor_si128(_mm_srli_si128(lane, 8), high);
    __m128i low = _mm_clmulepi64_si128(_mm_and_si128(lane, low_words), by_word, 0x00);
    lane = _mm_xor_si128(_mm_srli_si128(lane, 4), low);

    __m128i part = _mm_and_si128(lane, low_words);
    part = _mm_and_si128(_mm_clmulepi64_si128(part, quotient, 0x10), low_words);
    part = _mm_clmulepi64_si128(part, quotient, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(lane, part), 1);
}

/* Fold `count` lanes into one, and all that is left of whole lanes; return the remainder. */
WITH_FOLDS static uint32_t take_rest(const __m128i *lanes, int count, const uint8_t *bytes,
                                     int64_t size)
{
    const __m128i by_lane = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i lane = lanes[0];
    for (int i = 1; i < count; i++)
        lane = fold(lane, by_lane, lanes[i]);
    for (int64_t place = 0; place < size; place += LANE)
        lane = fold(lane, by_lane, load(bytes + place));
    return reduce(lane, by_lane);
}

/* Take whole lanes, four at least, by products without carries (Gopal et al., "Fast CRC
 * computation for generic polynomials using PCLMULQDQ", Intel 2009). */
WITH_FOLDS static uint32_t take_lanes(uint32_t sum, const uint8_t *bytes, int64_t size)
{
    const __m128i by_four = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    __m128i lanes[4];
    for (int i = 0; i < 4; i++)
        lanes[i] = load(bytes + i * LANE);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)sum));

    int64_t place = FOLDS;
    for (; place + FOLDS <= size; place += FOLDS)
        for (int i = 0; i < 4; i++)
            lanes[i] = fold(lanes[i], by_four, load(bytes + place + i * LANE));
    return take_rest(lanes, 4, bytes + place, size - place);
}

/* The same for sixteen lanes at least, two by an instruction: 16 GB/s became 31. */
WITH_WIDE_FOLDS static uint32_t take_wide_lanes(uint32_t sum, const uint8_t *bytes,
                                                int64_t size)
{
    const __m256i by_sixteen = _mm256_set_epi64x(0x1322d1430, 0x11542778a,
                                                 0x1322d1430, 0x11542778a);
    const __m256i *from = (const __m256i *)bytes;
    __m256i pairs[8];
    for (int i = 0; i < 8; i++)
        pairs[i] = _mm256_loadu_si256(from + i);
    __m256i first = _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, (int)sum);
    pairs[0] = _mm256_xor_si256(pairs[0], first);

    int64_t place = WIDE_FOLDS;
    for (; place + WIDE_FOLDS <= size; place += WIDE_FOLDS) {
        from = (const __m256i *)(bytes + place);
        for (int i = 0; i < 8; i++) {
            __m256i low = _mm256_clmulepi64_epi128(pairs[i], by_sixteen, 0x00);
            __m256i high = _mm256_clmulepi64_epi128(pairs[i], by_sixteen, 0x11);
            __m256i next = _mm256_loadu_si256(from + i);
            pairs[i] = _mm256_xor_si256(_mm256_xor_si256(low, high), next);
        }
    }
    __m128i lanes[16];
    memcpy(lanes, pairs, sizeof lanes);
    return take_rest(lanes, 16, bytes + place, size - place);
}

/* Take as much as can be taken quickly; return how much. */
static int64_t take_quickly(uint32_t *sum, const uint8_t *bytes, int64_t size)
{
    if (size < FOLDS || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
        return 0;
    bool is_wide = size >= WIDE_FOLDS && __builtin_cpu_supports("avx2")
                   && __builtin_cpu_supports("vpclmulqdq");
    int64_t count = size - size % LANE;
    *sum = is_wide ? take_wide_lanes(*sum, bytes, count) : take_lanes(*sum, bytes, count);
    return count;
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

/* Take as much as can be taken quickly; return how much. */
static int64_t take_quickly(uint32_t *sum, const uint8_t *bytes, int64_t size)
{
    int64_t place = 0;
    for (; place + 8 <= size; place += 8) {
        uint64_t word;
        memcpy(&word, bytes + place, sizeof word);
        *sum = __crc32d(*sum, word);
    }
    return place;
}
#else
static int64_t take_quickly(uint32_t *sum, const uint8_t *bytes, int64_t size)
{
    (void)sum, (void)bytes, (void)size;
    return 0;
}
#endif

/* Return the sum of what has the sum `before` and of so many bytes behind it; 0 is the sum of
 * none. */
uint32_t checksum(uint32_t before, const uint8_t *bytes, int64_t size)
{
    static const uint32_t of_nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t sum = ~before;
    for (int64_t i = take_quickly(&sum, bytes, size); i < size; i++) {
        sum ^= bytes[i];
        sum = sum >> 4 ^ of_nibble[sum & 15];
        sum = sum >> 4 ^ of_nibble[sum & 15];
    }
    return ~sum;
}
