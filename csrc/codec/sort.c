/* Heapsort of indices. */
#include "codec/sort.h"

#include <stdbool.h>

static bool before(ds_sort_compare compare, const void *context, uint32_t a, uint32_t b)
{
    const int order = compare(context, a, b);
    return order < 0 || (order == 0 && a < b);
}

/* Lets order[at] sink to its place in the heap order[0..n), whose largest item is on top. */
static void sink(uint32_t *order, size_t at, size_t n, ds_sort_compare compare, const void *context)
{
    const uint32_t item = order[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && before(compare, context, order[child], order[child + 1]))
            child++;
        if (!before(compare, context, item, order[child]))
            break;
        order[at] = order[child];
        at = child;
    }
    order[at] = item;
}

void ds_sort_indices(uint32_t *order, size_t n, ds_sort_compare compare, const void *context)
{
    for (size_t at = n / 2; at-- > 0;)
        sink(order, at, n, compare, context);
    for (size_t last = n; last-- > 1;) {
        const uint32_t largest = order[0];
        order[0] = order[last];
        order[last] = largest;
        sink(order, 0, last, compare, context);
    }
}
