/* ops/cast.c: the elements of a stream as another type (torch.Tensor.to).
 *
 * Real numbers become integers by dropping their fraction; NaN and what no int64 holds become the
 * least int64, as on x86. All but 0 becomes true. All counts are those of the input. */
#if defined(__SSE2__) && defined(__x86_64__)
#include <emmintrin.h>
#endif

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

static inline int64_t whole(double x)
{
#if defined(__SSE2__) && defined(__x86_64__)
    return _mm_cvttsd_si64(_mm_set_sd(x)); /* compilers don't know that it does just this */
#else
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
#endif
}

#define EACH(from, to, expression)           \
    for (size_t i = 0; i < n; i++) {         \
        const from v = ((const from *)x)[i]; \
        ((to *)y)[i] = (expression);         \
    }

/* Converts elements v of one type to the target. */
#define CONVERT(type, as_int)               \
    switch (op->out[0].dtype) {             \
    case DS_F32:                            \
        EACH(type, float, (float)v)         \
        break;                              \
    case DS_F64:                            \
        EACH(type, double, (double)v)       \
        break;                              \
    case DS_I64:                            \
        EACH(type, int64_t, as_int)         \
        break;                              \
    default:                                \
        EACH(type, uint8_t, v != 0 ? 1 : 0) \
        break;                              \
    }

static void cast_frames(const ds_op *op, const ds_run *run, void *restrict y,
                        const void *restrict x, size_t n_frames)
{
    const size_t n = n_frames * (size_t)ds_signature_elements(&op->in[0]);
    (void)run;
    switch (op->in[0].dtype) {
    case DS_F32:
        CONVERT(float, whole((double)v))
        break;
    case DS_F64:
        CONVERT(double, whole(v))
        break;
    case DS_I64:
        CONVERT(int64_t, v)
        break;
    case DS_I16:
        CONVERT(int16_t, v)
        break;
    default:
        CONVERT(uint8_t, v)
        break;
    }
}
DS_FRAMEWISE_FORWARD(cast)

const ds_op_def ds_op_cast = {DS_OPERATOR(cast, "Converts elements to another type."),
                              .attrs = cast_attrs};
