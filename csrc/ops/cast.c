/* ops/cast.c: the elements of a stream as another type (torch.Tensor.to).
 *
 * Real numbers become integers by dropping their fraction; NaN and what no int64 holds become the
 * least int64, as on x86. All but 0 becomes true. All counts are those of the input. */
#include "ops/framewise.h"
#include "ops/registry.h"

enum { TO };

static const ds_attr_def cast_attrs[] = {{"to", DS_ATTR_CHOICE, .required = true,
                                          .choices = "float32|float64|int64|bool",
                                          .doc = "the element type"},
                                         {0}};

static const ds_dtype targets[] = {DS_F32, DS_F64, DS_I64, DS_BOOL};

static ds_status cast_infer(ds_op *op)
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
        case DS_F32:                                                        \
            EACH(float, (float)x[i]);                                       \
            break;                                                          \
        case DS_F64:                                                        \
            EACH(double, (double)x[i]);                                     \
            break;                                                          \
        case DS_I64:                                                        \
            EACH(int64_t, as_int);                                          \
            break;                                                          \
        default:                                                            \
            EACH(uint8_t, x[i] != 0 ? 1 : 0);                               \
            break;                                                          \
        }                                                                   \
    }

DEFINE_CONVERT(convert_f32, float, whole((double)x[i]))
DEFINE_CONVERT(convert_f64, double, whole(x[i]))
DEFINE_CONVERT(convert_i64, int64_t, x[i])
DEFINE_CONVERT(convert_i16, int16_t, (int64_t)x[i])
DEFINE_CONVERT(convert_bool, uint8_t, (int64_t)x[i])

static void cast_frames(const ds_op *op, const ds_run *run, void *y, const void *x, size_t n_frames)
{
    const size_t n = n_frames * (size_t)ds_signature_elements(&op->in[0]);
    const ds_dtype target = op->out[0].dtype;
    (void)run;
    switch (op->in[0].dtype) {
    case DS_F32:
        convert_f32(target, y, x, n);
        break;
    case DS_F64:
        convert_f64(target, y, x, n);
        break;
    case DS_I64:
        convert_i64(target, y, x, n);
        break;
    case DS_I16:
        convert_i16(target, y, x, n);
        break;
    default:
        convert_bool(target, y, x, n);
        break;
    }
}
DS_FRAMEWISE_FORWARD(cast)

const ds_op_def ds_op_cast = {DS_OPERATOR(cast, "Converts elements to another type."),
                              .attrs = cast_attrs};
