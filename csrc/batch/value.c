/* batch/value.c: element types, signatures, rates: their sizes, texts and sums. */
#include "batch/value.h"

#include <stdio.h>

size_t ds_dtype_bytes(ds_dtype dtype)
{
    switch (dtype) {
    case DS_F32:
        return sizeof(float);
    case DS_F64:
        return sizeof(double);
    case DS_I64:
        return sizeof(int64_t);
    case DS_BOOL:
        return 1;
    case DS_I16:
        return sizeof(int16_t);
    default:
        return 0;
    }
}

const char *ds_dtype_name(ds_dtype dtype)
{
    switch (dtype) {
    case DS_F32:
        return "float32";
    case DS_F64:
        return "float64";
    case DS_I64:
        return "int64";
    case DS_BOOL:
        return "bool";
    case DS_I16:
        return "int16";
    default:
        return "none";
    }
}

int64_t ds_signature_elements(const ds_signature *signature)
{
    int64_t n = 1;
    for (int i = 0; i < signature->rank; i++) {
        if (signature->shape[i] == 0)
            return 0;
    }
    for (int i = 0; i < signature->rank; i++) {
        if (n > INT64_MAX / signature->shape[i])
            return INT64_MAX;
        n *= signature->shape[i];
    }
    return n;
}

size_t ds_signature_bytes(const ds_signature *signature)
{
    const uint64_t n = (uint64_t)ds_signature_elements(signature);
    const size_t element = ds_dtype_bytes(signature->dtype);
    if (element != 0 && n > SIZE_MAX / element)
        return SIZE_MAX;
    return (size_t)n * element;
}

bool ds_signature_same_shape(const ds_signature *a, const ds_signature *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++) {
        if (a->shape[i] != b->shape[i])
            return false;
    }
    return true;
}

const char *ds_signature_text(const ds_signature *signature, char *text, size_t n_bytes)
{
    if (n_bytes == 0)
        return "";
    size_t used = 0;
    text[0] = 0;
    for (int i = -1; i <= signature->rank && used < n_bytes; i++) {
        int n;
        if (i < 0) {
            n = snprintf(text + used, n_bytes - used, "(");
        } else if (i == signature->rank) {
            n = snprintf(text + used, n_bytes - used, "%s", signature->rank == 1 ? ",)" : ")");
        } else {
            n = snprintf(text + used, n_bytes - used, "%s%lld", i == 0 ? "" : ", ",
                         (long long)signature->shape[i]);
        }
        used += n > 0 ? (size_t)n : 0;
    }
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
