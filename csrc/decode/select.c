/* Quickselect. The pivot's place follows from a fixed sequence of numbers, which no data can be arranged for without
 * knowing how much was selected before. */
#include "decode/select.h"

#include <stdbool.h>

static bool is_before(const double *keys, int32_t a, int32_t b)
{
    return keys[a] > keys[b] || (!(keys[a] < keys[b]) && a < b);
}

void ds_select_best(const double *keys, int32_t *order, size_t n, size_t k)
{
    size_t from = 0, to = n; /* the border lies within */
    uint64_t random = n;
    while (from < k && k < to && to - from > 1) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const int32_t pivot = order[from + (size_t)(random >> 33) % (to - from)];
        size_t low = from, high = to - 1;
        for (;;) {
            while (is_before(keys, order[low], pivot))
                low++;
            while (is_before(keys, pivot, order[high]))
                high--;
            if (low >= high)
                break;
            const int32_t swapped = order[low];
            order[low++] = order[high];
            order[high--] = swapped;
        }
        const size_t border =
            order[high] == pivot || is_before(keys, order[high], pivot) ? high + 1 : high;
        if (border >= to) { /* all but the pivot, the last, are before it */
            if (k == to - 1)
                return;
            to--;
            continue;
        }
        if (k < border)
            to = border;
        else
            from = border;
    }
}
