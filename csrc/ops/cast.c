/* ops/cast.c: the elements of a stream as another type (torch.Tensor.to).
 *
 * Real numbers become integers by dropping their fraction; NaN and what no int64 holds become the
 * least int64, as on x86. All but 0 becomes true. All counts are those of the input. */
#if defined(__SSE2__) && defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "ops/back.h"
#include "ops/framewise.h"
#include "ops/registry.h"

enum { TO };

static const ds_attr_def cast_attrs[] = {{"to", DS_ATTR_CHOICE, .required = true,
                                          .choices = "float32|float64|int64|bool",
                                          .doc = "the element type"},
                                         {0}};

static ds_status cast_infer(ds_op *op)
{
    static const ds_dtype targets[] = {DS_F32, DS_F64, DS_I64, DS_BOOL};
    op->out[0].dtype = targets[op->attr[TO].i];
    return DS_OK;
}

static inline int64_t whole_of_real(double x)
{
#if defined(__SSE2__) && defined(__x86_64__)
    return _mm_cvttsd_si64(_mm_set_sd(x)); /* compilers don't know that it does just this */
#else
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
#endif
}

static inline int64_t whole_of_int(int64_t x)
{
    return x;
}

#define WHOLE(v) _Generic(v, float: whole_of_real, double: whole_of_real, default: whole_of_int)(v)

#define EACH(from, to_type, to, expression)      \
    case to_type:                                \
        for (size_t i = 0; i < n; i++) {         \
            const from v = ((const from *)x)[i]; \
            ((to *)y)[i] = (expression);         \
        }                                        \
        break;

/* Converts elements v of one type to the target. */
#define FROM(from_type, type)                            \
    case from_type:                                      \
        switch (op->out[0].dtype) {                      \
            EACH(type, DS_F32, float, (float)v)          \
            EACH(type, DS_F64, double, (double)v)        \
            EACH(type, DS_I64, int64_t, WHOLE(v))        \
            EACH(type, DS_BOOL, uint8_t, v != 0 ? 1 : 0) \
        case DS_I16:                                     \
            break;                                       \
        }                                                \
        break;

static void cast_frames(const ds_op *op, const ds_run *run, const ds_frames *f)
{
    const size_t n = f->n * ds_elements(&op->in[0]);
    void *const restrict y = f->y[0];
    const void *const restrict x = f->x[0];
    (void)run;
    switch (op->in[0].dtype) {
        FROM(DS_F32, float)
        FROM(DS_F64, double)
        FROM(DS_I64, int64_t)
        FROM(DS_I16, int16_t)
        FROM(DS_BOOL, uint8_t)
    }
}
DS_FRAMEWISE_FORWARD(cast)

static void cast_slopes(const ds_op *op, const ds_back *b, const ds_frames *f)
{
    const size_t n = f->n * ds_elements(&op->in[0]);
    (void)b;
    for (size_t i = 0; i < n && f->dx[0]; i++)
        ds_back_add_real(f->dx[0], ds_op_element(op), i,
                         ds_sums_real(f->g[0], ds_dtype_bytes(op->out[0].dtype), i));
}
DS_FRAMEWISE_BACKWARD(cast)

const ds_op_def ds_op_cast = {DS_OPERATOR(cast, "Converts elements to another type."),
                              .attrs = cast_attrs, .backward = cast_backward};
