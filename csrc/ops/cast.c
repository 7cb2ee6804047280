/* ops/cast.c: the elements of a stream as another type (torch.Tensor.to).
 *
 * Real numbers become integers by dropping their fraction; NaN and what no int64 holds become the
 * least int64, as on x86. All but 0 becomes true. All counts are those of the input. */
#include "ops/registry.h"

enum { TO };

static const ds_attr_def attrs[] = {{"to", DS_ATTR_CHOICE, .required = true,
                                     .choices = "float32|float64|int64|bool",
                                     .doc = "the element type"},
                                    {0}};

static const ds_dtype targets[] = {DS_F32, DS_F64, DS_I64, DS_BOOL};

static ds_status infer(ds_op *op)
{
    op->out[0].dtype = targets[op->attr[TO].i];
    return DS_OK;
}

static int64_t whole(double x)
{
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}

#define EACH(type, expression)           \
    do {                                 \
        type *to = y;                    \
        for (size_t i = 0; i < n; i++) { \
            to[i] = (expression);        \
        }                                \
    } while (0)

/* Converts n elements of one type to `target`. */
#define DEFINE_CONVERT(name, type, as_int)                                  \
    static void name(ds_dtype target, void *y, const void *given, size_t n) \
    {                                                                       \
        const type *x = given;                                              \
        switch (target) {                                                   \
        case DS_F32: EACH(float, (float)x[i]); break;                       \
        case DS_F64: EACH(double, (double)x[i]); break;                     \
        case DS_I64: EACH(int64_t, as_int); break;                          \
        default: EACH(uint8_t, x[i] != 0 ? 1 : 0); break;                   \
        }                                                                   \
    }

DEFINE_CONVERT(convert_f32, float, whole((double)x[i]))
DEFINE_CONVERT(convert_f64, double, whole(x[i]))
DEFINE_CONVERT(convert_i64, int64_t, x[i])
DEFINE_CONVERT(convert_i16, int16_t, (int64_t)x[i])
DEFINE_CONVERT(convert_bool, uint8_t, (int64_t)x[i])

static void forward(const ds_op *op, const ds_run *run)
{
    const size_t n = (size_t)ds_signature_elements(&op->in[0]);
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    const ds_dtype target = op->out[0].dtype;
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m1 <= out->m0) {
            continue;
        }
        const void *x = ds_at(&run->in[r], out->m0, n_bytes);
        const size_t n_elements = (size_t)(out->m1 - out->m0) * n;
        switch (op->in[0].dtype) {
        case DS_F32: convert_f32(target, out->data, x, n_elements); break;
        case DS_F64: convert_f64(target, out->data, x, n_elements); break;
        case DS_I64: convert_i64(target, out->data, x, n_elements); break;
        case DS_I16: convert_i16(target, out->data, x, n_elements); break;
        default: convert_bool(target, out->data, x, n_elements); break;
        }
    }
}

const ds_op_def ds_op_cast = {.name = "cast",
                              .doc = "Converts elements to another type.",
                              .n_inputs = 1,
                              .n_outputs = 1,
                              .n_values = 1,
                              .attrs = attrs,
                              .infer = infer,
                              .forward = forward};
