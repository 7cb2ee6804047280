/* batch/value.c: element types, signatures, rates: their sizes, texts and sums. */
#include "batch/value.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[] = {
    {"none", 0},
    [DS_F32] = {"float32", sizeof(float)},
    [DS_F64] = {"float64", sizeof(double)},
    [DS_I64] = {"int64", sizeof(int64_t)},
    [DS_BOOL] = {"bool", 1},
    [DS_I16] = {"int16", sizeof(int16_t)},
};

static size_t known(ds_dtype dtype)
{
    return (size_t)dtype < sizeof dtypes / sizeof *dtypes ? (size_t)dtype : 0;
}

size_t ds_dtype_bytes(ds_dtype dtype)
{
    return dtypes[known(dtype)].n_bytes;
}

const char *ds_dtype_name(ds_dtype dtype)
{
    return dtypes[known(dtype)].name;
}

ds_dtype ds_dtype_find(const char *name)
{
    size_t i = sizeof dtypes / sizeof *dtypes - 1;
    while (i > 0 && strcmp(dtypes[i].name, name) != 0)
        i--;
    return (ds_dtype)i;
}

int64_t ds_signature_elements(const ds_signature *signature)
{
    int64_t n = 1;
    bool fits = true;
    for (int i = 0; i < signature->rank; i++) {
        if (signature->shape[i] == 0)
            return 0;
        fits =
            fits && signature->shape[i] > 0 && !__builtin_mul_overflow(n, signature->shape[i], &n);
    }
    return fits ? n : INT64_MAX;
}

size_t ds_signature_bytes(const ds_signature *signature)
{
    const uint64_t n = (uint64_t)ds_signature_elements(signature);
    size_t n_bytes;
    return __builtin_mul_overflow(n, ds_dtype_bytes(signature->dtype), &n_bytes) ? SIZE_MAX
                                                                                 : n_bytes;
}

bool ds_signature_same_shape(const ds_signature *a, const ds_signature *b)
{
    return a->rank == b->rank &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

const char *ds_signature_text(const ds_signature *signature, char *text, size_t n_bytes)
{
    if (n_bytes == 0)
        return "";
    size_t used = (size_t)snprintf(text, n_bytes, "(");
    for (int i = 0; i < signature->rank && used < n_bytes; i++)
        used += (size_t)snprintf(text + used, n_bytes - used, "%s%lld", i == 0 ? "" : ", ",
                                 (long long)signature->shape[i]);
    if (used < n_bytes)
        (void)snprintf(text + used, n_bytes - used, signature->rank == 1 ? ",)" : ")");
    return text;
}

bool ds_rate_equal(ds_rate a, ds_rate b)
{
    return a.num == b.num && a.den == b.den;
}

int64_t ds_greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

bool ds_rate_scale(ds_rate *rate, int64_t num, int64_t den)
{
    if (num < 0 || den < 1 || rate->num < 0 || rate->den < 1)
        return false;
    if (num == 0 || rate->num == 0) {
        *rate = (ds_rate){0, 1};
        return true;
    }
    /* Each fraction is reduced first, then across: what remains has no common divisor. */
    const int64_t own = ds_greatest_divisor(num, den);
    num /= own;
    den /= own;
    const int64_t up = ds_greatest_divisor(rate->num, den);
    const int64_t down = ds_greatest_divisor(num, rate->den);
    const int64_t rate_num = rate->num / up, rate_den = rate->den / down;
    num /= down;
    den /= up;
    if (rate_num > INT64_MAX / num || rate_den > INT64_MAX / den)
        return false;
    *rate = (ds_rate){rate_num * num, rate_den * den};
    return true;
}
