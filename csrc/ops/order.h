/* ops/order.h: integers in the order of values, for operators that put these in order. */
#pragma once
#include <string.h>

#include "ops/op.h"

/* An integer that is less where the element is: NaN is the greatest, of two zeros none is. */
static inline uint64_t ds_order_key(const void *element, ds_dtype dtype)
{
    const uint64_t sign = (uint64_t)1 << 63;
    uint64_t bits;
    if (dtype == DS_BOOL)
        return *(const unsigned char *)element != 0;
    if (dtype == DS_I64) {
        memcpy(&bits, element, sizeof bits);
        return bits ^ sign;
    }
    if (dtype == DS_F32) {
        uint32_t half;
        memcpy(&half, element, sizeof half);
        bits = (uint64_t)half << 32;
    } else {
        memcpy(&bits, element, sizeof bits);
    }
    const uint64_t size = bits & ~sign;
    if (size > (dtype == DS_F32 ? (uint64_t)0x7f800000 << 32 : (uint64_t)0x7ff << 52)) /* NaN */
        return UINT64_MAX;
    return size == 0 ? sign : bits & sign ? ~bits : bits | sign;
}

/* An element's key, and its place. */
typedef struct ds_order_pair {
    uint64_t key;
    int64_t at;
} ds_order_pair;

/* Equals stand as their places do. */
static inline bool ds_order_less(ds_order_pair a, ds_order_pair b)
{
    return (a.key < b.key) | ((a.key == b.key) & (a.at < b.at));
}
