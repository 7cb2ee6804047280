/* Sorting of indices, without memory of its own and in n log n whatever the data: it sorts what
 * strangers wrote. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Returns less than 0, 0 or more than 0 as item `a` comes before, is equal to or after item `b`. */
typedef int (*ds_sort_compare)(const void *context, uint32_t a, uint32_t b);
/* Sorts `order` (heapsort); equal items stand in ascending order of their numbers. */
void ds_sort_indices(uint32_t *order, size_t n, ds_sort_compare compare, const void *context);
