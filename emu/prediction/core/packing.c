/* Packing: one machine more of Algorithm 2's dynamic program over counts. */
#include <string.h>

#include "inline.h"

/* Put every option on top of every state; return how many sums are new.
 *
 * `states` is (count, groups), `options` (choices, groups); a sum is new the first time
 * that its code, sum of counts times `strides`, comes, in order of states, then options.
 * Fills the `origin` and the `addition` of each, and `seen`, a byte per code. */
int64_t extend(const int64_t *states, int64_t count, const int64_t *options,
               int64_t choices, const int64_t *sizes, const int64_t *strides,
               int64_t groups, bool *seen, int64_t codes, int32_t *origin,
               int32_t *addition)
{
    int64_t found = 0;
    memset(seen, 0, (size_t)codes);
    for (int64_t s = 0; s < count; s++) {
        const int64_t *state = states + s * groups;
        for (int64_t o = 0; o < choices; o++) {
            const int64_t *option = options + o * groups;
            int64_t code = 0, group = 0;
            for (; group < groups; group++) {
                int64_t sum = state[group] + option[group];
                if (sum > sizes[group])
                    break;
                code += sum * strides[group];
            }
            if (group < groups || seen[code])
                continue;
            seen[code] = true;
            origin[found] = (int32_t)s;
            addition[found++] = (int32_t)o;
        }
    }
    return found;
}
