/* ops/order.h: integers in the order of values, for operators that put these in order. */
#ifndef DS_OPS_ORDER_H
#define DS_OPS_ORDER_H
#include <math.h>
#include <string.h>

#include "ops/op.h"

/* DS_DTYPE unless input 0 has an order. */
static inline ds_status ds_require_order(const ds_op *op)
{
    const ds_dtype dtype = op->in[0].dtype;
    DS_CHECK(ds_is_real(dtype) || dtype == DS_I64 || dtype == DS_BOOL, DS_DTYPE,
             "%s: expected floats, int64 or bools, got %s", op->def->name, ds_dtype_name(dtype));
    return DS_OK;
}

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
    const double v = dtype == DS_F32 ? (double)*(const float *)element : *(const double *)element;
    if (isnan(v))
        return UINT64_MAX;
    const double one_zero = v + 0.0;
    memcpy(&bits, &one_zero, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

#endif
