/* ops/length.c: functions of a stream's length, read and checked. */
#include "ops/length.h"

#define LIMIT ((int64_t)1 << 40)

static int64_t limited_product(int64_t a, int64_t b)
{
    return a > LIMIT / b ? LIMIT : a * b;
}

ds_status ds_length_read(const ds_op *op, int attr, ds_length *length)
{
    const char *name = op->def->name;
    const ds_attr_value *codes = &op->attr[attr];
    DS_CHECK(codes->n_ints % 2 == 0, DS_ARGUMENT,
             "%s: attribute '%s' must hold pairs of a code and a constant, got %d integers", name,
             op->def->attrs[attr].name, codes->n_ints);
    *length = (ds_length){1, 1};
    for (int i = 0; i < codes->n_ints; i += 2) {
        const int64_t code = codes->ints[i], k = codes->ints[i + 1];
        DS_CHECK(code >= 0 && code <= 2, DS_ARGUMENT,
                 "%s: attribute '%s' has the code %lld, expected 0 (+), 1 (*) or 2 (//)", name,
                 op->def->attrs[attr].name, (long long)code);
        DS_CHECK(code == 0 || k >= 1, DS_ARGUMENT,
                 "%s: a length is multiplied and divided by 1 or more, got %lld", name,
                 (long long)k);
        if (code == 1)
            length->mul = limited_product(length->mul, k);
        else if (code == 2)
            length->div = limited_product(length->div, k);
    }
    DS_CHECK(length->mul < LIMIT && length->div < LIMIT, DS_ARGUMENT,
             "%s: the constants of a length's function exceed 2^40 together", name);
    return DS_OK;
}

ds_status ds_length_rate(const ds_op *op, const ds_length *length, ds_rate *rate)
{
    DS_CHECK(ds_rate_scale(rate, length->mul, length->div), DS_ARGUMENT,
             "%s: the rate of its length overflows", op->def->name);
    return DS_OK;
}
