/* The k best of n, without sorting the rest. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Moves the numbers of the k largest keys to the front of `order` (n numbers, all different), in no order; of equal
 * keys the lower number counts as larger. No key is NaN. */
void ds_select_best(const double *keys, int32_t *order, size_t n, size_t k);
