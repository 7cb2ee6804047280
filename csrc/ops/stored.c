/* ops/stored.c: how an operator's weights are stored: in which format, by which scales. */
#include "kernels/narrow.h"

#include "ops/op.h"

size_t ds_op_narrows(const ds_op *op)
{
    size_t deepest = 0;
    for (int i = 0; op->def->narrows != NULL && i < op->n_weights; i++) {
        const size_t depth = op->def->narrows(op, i);
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

ds_status ds_op_store(ds_op *op, ds_narrowing how)
{
    const size_t deepest = ds_op_narrows(op);
    const bool can = deepest > 0 && (how.stored != DS_STORED_WIDE || how.products);
    op->stored = can ? how.stored : DS_STORED_WIDE;
    op->products = can && how.products && how.stored != DS_STORED_FP16;
    const size_t most = how.stored == DS_STORED_INT8 ? DS_INT8_DEPTH : DS_BF16_DEPTH;
    DS_CHECK(!op->products || deepest <= most, DS_LIMIT,
             "products of %s take %zu elements at most, got %zu; keep them wider",
             ds_products_name(op), most, deepest);
    return op->def->store ? op->def->store(op) : DS_OK;
}

bool ds_op_splits(const ds_op *op)
{
    return op->products && op->stored == DS_STORED_WIDE;
}

const char *ds_products_name(const ds_op *op)
{
    return ds_stored_name(ds_op_splits(op) ? DS_STORED_SPLIT
                          : op->products   ? op->stored
                                           : DS_STORED_WIDE);
}

static size_t narrow_elements(const ds_op *op, int i)
{
    return ds_signature_bytes(&op->weight[i]) / sizeof(float);
}

ds_stored ds_op_stored(const ds_op *op, int i)
{
    const bool narrow = op->stored != DS_STORED_WIDE && op->weight[i].dtype == DS_F32 &&
                        op->def->narrows(op, i) > 0;
    return narrow ? op->stored : DS_STORED_WIDE;
}

ds_signature ds_op_scales(const ds_op *op, int i)
{
    ds_signature scales = {.dtype = DS_F32, .rank = 1};
    const size_t channel = op->def->narrows(op, i), n = narrow_elements(op, i);
    scales.shape[0] = (int64_t)(n / channel);
    if (op->def->scale_of != NULL) {
        scales = op->weight[i];
        scales.shape[0] = (int64_t)(n / channel) / scales.shape[1];
    }
    return scales;
}

/* The greatest magnitude of each scale's elements in a run, then the scales. */
static void narrow_scales(const ds_op *op, float *scales, size_t places, const float *from,
                          size_t run)
{
    for (size_t place = 0; place < places; place++) {
        float greatest = places == 1 ? ds_narrow_greatest_of(from, run) : 0;
        for (size_t e = place; e < run && places > 1; e += places)
            greatest = ds_narrow_greatest(greatest, from[e]);
        scales[place] = greatest;
    }
    for (size_t place = 0; place < places && op->def->scale_of != NULL; place++) {
        float *const first = &scales[op->def->scale_of(op, place)];
        *first = ds_narrow_greatest(*first, scales[place]);
    }
    for (size_t place = places; place-- > 0;) /* the first after those that share it */
        scales[place] = ds_narrow_scale(
            scales[op->def->scale_of != NULL ? op->def->scale_of(op, place) : place]);
}

/* Returns the first of n numbers that is finite and would be stored as infinite; n: none is. */
static size_t find_beyond(ds_stored how, const float *from, size_t n)
{
    const uint32_t first = how == DS_STORED_FP16 ? DS_FP16_BEYOND : DS_BF16_BEYOND;
    uint32_t any = 0;
    for (size_t e = 0; e < n; e++)
        any |= (ds_float_bits(from[e]) & INT32_MAX) - first < 0x7f800000 - first;
    size_t e = any ? 0 : n;
    while (e < n && (ds_float_bits(from[e]) & INT32_MAX) - first >= 0x7f800000 - first)
        e++;
    return e;
}

enum {
    NARROWED = 128
}; /* at a time, between which and where they come from compilers see no overlap */

static inline void narrow_some(const ds_stored how, const float *from, const size_t n, float scale,
                               char *stored, float *wide)
{
    const size_t width = how == DS_STORED_INT8 ? 1 : 2;
    char narrow[2 * NARROWED], one[2];
    for (size_t e = 0; e < n && stored != NULL; e++)
        ds_narrowed(how, narrow + e * width, from[e], scale);
    if (stored != NULL)
        memcpy(stored, narrow, n * width);
    for (size_t e = 0; e < n && wide != NULL; e++) {
        ds_narrowed(how, one, from[e], scale);
        wide[e] = ds_widened(how, one, scale);
    }
}

/* Narrows n elements of one scale; `wide` may be `from`. */
static inline void narrow_run(const ds_stored how, const float *from, size_t n, float scale,
                              char *stored, float *wide)
{
    const size_t width = how == DS_STORED_INT8 ? 1 : 2, whole = n / NARROWED * NARROWED;
    for (size_t e = 0; e < whole; e += NARROWED)
        narrow_some(how, from + e, NARROWED, scale, stored != NULL ? stored + e * width : NULL,
                    wide != NULL ? wide + e : NULL);
    narrow_some(how, from + whole, n - whole, scale, stored != NULL ? stored + whole * width : NULL,
                wide != NULL ? wide + whole : NULL);
}

size_t ds_op_narrowed(const ds_op *op, int i, const float *from, float *scales, char *stored,
                      float *wide)
{
    const ds_stored how = ds_op_stored(op, i);
    const bool scaled = how == DS_STORED_INT8;
    const size_t width = ds_stored_bytes(how), n = narrow_elements(op, i);
    const ds_signature shape = ds_op_scales(op, i);
    const size_t run = n / (size_t)shape.shape[0];
    const size_t places = ds_signature_bytes(&shape) / sizeof(float) / (size_t)shape.shape[0];
    for (size_t first = 0; first < n; first += run, scales += scaled ? places : 0) {
        char *const to = stored != NULL ? stored + first * width : NULL;
        float *const whole = wide != NULL ? wide + first : NULL;
        const size_t beyond = scaled ? run : find_beyond(how, from + first, run);
        if (beyond < run)
            return first + beyond;
        if (to == NULL && whole == NULL)
            continue;
        if (scaled)
            narrow_scales(op, scales, places, from + first, run);
        if (how == DS_STORED_BF16)
            narrow_run(DS_STORED_BF16, from + first, run, 1, to, whole);
        else if (how == DS_STORED_FP16)
            narrow_run(DS_STORED_FP16, from + first, run, 1, to, whole);
        else if (places == 1)
            narrow_run(DS_STORED_INT8, from + first, run, scales[0], to, whole);
        else
            for (size_t e = 0; e < run; e++)
                narrow_run(DS_STORED_INT8, from + first + e, 1, scales[e % places],
                           to != NULL ? to + e : NULL, whole != NULL ? whole + e : NULL);
    }
    return n;
}

static inline void widen_run(const ds_stored how, const char *from, size_t n, float scale,
                             float *to)
{
    const size_t width = how == DS_STORED_INT8 ? 1 : 2;
    for (size_t e = 0; e < n; e++)
        to[e] = ds_widened(how, from + e * width, scale);
}

void ds_widen(ds_stored stored, const void *elements, size_t n, const float *scales, size_t n_runs,
              size_t n_scales, float *to)
{
    const char *from = elements;
    if (stored == DS_STORED_BF16)
        widen_run(DS_STORED_BF16, from, n, 1, to);
    else if (stored == DS_STORED_FP16)
        widen_run(DS_STORED_FP16, from, n, 1, to);
    else if (n_scales == 1)
        for (size_t r = 0, run = n / n_runs; r < n_runs; r++)
            widen_run(DS_STORED_INT8, from + r * run, run, scales[r], to + r * run);
    else
        for (size_t e = 0; e < n; e++)
            to[e] = ds_widened(stored, from + e,
                               scales[e / (n / n_runs) * n_scales + e % (n / n_runs) % n_scales]);
}
