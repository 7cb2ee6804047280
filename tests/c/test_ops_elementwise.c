/* ops: elementwise, logical, unary, softmax and glu, streamed in random chunks, against libm. */
#include "op_stream.h"
#include "ops/registry.h"
#include "pointwise_ideals.h"

enum { MOST = 20, FRAME = 64 }; /* frames of a stream, elements of a frame */

/* An array of one operand or result, as double beside its own type. */
typedef struct values {
    double x[MOST * FRAME];
    char bytes[MOST * FRAME * sizeof(double)];
} values;

static void store(values *v, ds_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float f = (float)v->x[i];
        const uint8_t b = v->x[i] > 0.5;
        memcpy(v->bytes + i * (int64_t)ds_dtype_bytes(dtype),
               dtype == DS_F64   ? (const void *)&v->x[i]
               : dtype == DS_F32 ? (const void *)&f
                                 : (const void *)&b,
               ds_dtype_bytes(dtype));
    }
}

static void draw(values *v, ds_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        v->x[i] = dtype == DS_BOOL ? (double)random_in(0, 1) : (double)random_in(-48, 48) / 16.0;
    }
    store(v, dtype, n);
}

static const ds_real_kernels *kernels(ds_dtype dtype)
{
    return &ds_kernels_for(DS_ISA_REF)->real[dtype == DS_F64];
}

/* ---------------------------------------------------------------- two or three operands */

static double where_ideal(const double *v)
{
    return v[0] > 0.5 ? v[1] : v[2];
}

/* NumPy's broadcasting, by coordinates: element e of a result of `shape`, in an operand. */
static int64_t broadcast(const ds_signature *operand, const ds_signature *shape, int64_t e)
{
    int64_t index = 0, stride = 1;
    for (int d = 0; d < operand->rank; d++) {
        const int64_t size = shape->shape[shape->rank - 1 - d];
        const int64_t own = operand->shape[operand->rank - 1 - d];
        index += own == 1 ? 0 : e % size * stride;
        e /= size;
        stride *= own;
    }
    return index;
}

/* f: of two operands; NULL: where, which has three. */
static void test_operands(const char *name, ds_dtype dtype, double (*f)(double a, double b),
                          bool logical)
{
    static values data[3][STREAM_ROWS], constant[3], want[STREAM_ROWS];
    const int n_operands = f == NULL ? 3 : 2;
    const ds_dtype first = f == NULL || logical ? DS_BOOL : dtype;
    ds_signature shape = {.rank = (int)random_in(0, 4)}, in[3], weight[3];
    for (int d = 0; d < shape.rank; d++) {
        shape.shape[d] = random_in(1, d < 2 ? 3 : 2);
    }
    ds_attr order = {.name = "order", .kind = DS_ATTR_INTS, .value.n_ints = n_operands};
    size_t n_in = 0, n_weights = 0;
    ds_signature operand[3];
    const void *weights[3];
    for (int i = 0; i < n_operands; i++) {
        const bool plain = random_in(0, 2) == 0;
        const int drop = plain ? 0 : (int)random_in(0, shape.rank);
        operand[i] = (ds_signature){.dtype = i == 0 || f != NULL ? first : dtype,
                                    .rank = shape.rank - drop,
                                    .rate = {1, 1}};
        for (int d = 0; d < operand[i].rank; d++) {
            operand[i].shape[d] = !plain && random_in(0, 2) == 0 ? 1 : shape.shape[d + drop];
        }
        const bool fixed = random_in(0, 2) == 0 && (i + 1 < n_operands || n_in > 0);
        order.value.ints[i] = fixed;
        if (fixed) {
            draw(&constant[i], operand[i].dtype, ds_signature_elements(&operand[i]));
            weights[n_weights] = constant[i].bytes;
            weight[n_weights++] = operand[i];
        } else {
            in[n_in++] = operand[i];
        }
    }
    ds_op *op = NULL;
    const bool given = n_weights > 0 || random_in(0, 1) == 0;
    const ds_op_def *def = ds_op_find(name);
    CHECK(ds_op_create(&op, NULL, def, &order, given ? 1 : 0, in, n_in, weight, n_weights) ==
          DS_OK);
    CHECK(op->same_counts);
    const int64_t n_elements = ds_signature_elements(&op->out[0]);
    op_streams s = {.op = op,
                    .weights = weights,
                    .k = kernels(dtype),
                    .n_rows = STREAM_ROWS,
                    .tolerance = name[0] == 'p'    ? 1e-5
                                 : dtype == DS_F32 ? 1e-6
                                                   : 1e-14};
    for (size_t r = 0; r < s.n_rows; r++) {
        const int64_t n = random_in(0, 3) == 0 ? 0 : random_in(1, MOST);
        for (int i = 0, next = 0; i < n_operands; i++) {
            if (order.value.ints[i] == 0) {
                draw(&data[i][r], operand[i].dtype, n * ds_signature_elements(&operand[i]));
                s.in[next][r] = data[i][r].bytes;
                s.n_in[next++][r] = n;
            }
        }
        for (int64_t j = 0; j < n * n_elements; j++) {
            double v[3];
            for (int i = 0; i < n_operands; i++) {
                const int64_t e = broadcast(&operand[i], &op->out[0], j % n_elements);
                v[i] = order.value.ints[i] == 1
                           ? constant[i].x[e]
                           : data[i][r].x[j / n_elements * ds_signature_elements(&operand[i]) + e];
            }
            want[r].x[j] = f == NULL ? where_ideal(v) : f(v[0], v[1]);
        }
        store(&want[r], op->out[0].dtype, n * n_elements);
        s.want[r] = want[r].bytes;
        s.n_want[r] = n;
    }
    check_streams(&s);
    ds_op_destroy(op);
}

/* ---------------------------------------------------------------- one operand */

/* Streams `op` against f, which turns a frame into a frame. */
static void stream_frames(const ds_op *op, ds_dtype dtype, double tolerance,
                          void (*f)(const void *context, double *y, const double *x),
                          const void *context)
{
    static values data[STREAM_ROWS], want[STREAM_ROWS];
    const int64_t n_in = ds_signature_elements(&op->in[0]);
    const int64_t n_out = ds_signature_elements(&op->out[0]);
    op_streams s = {.op = op, .k = kernels(dtype), .n_rows = STREAM_ROWS, .tolerance = tolerance};
    CHECK(op->same_counts);
    for (size_t r = 0; r < s.n_rows; r++) {
        const int64_t n = r == 0 ? 0 : random_in(1, MOST);
        draw(&data[r], op->in[0].dtype, n * n_in);
        for (int64_t t = 0; t < n; t++) {
            f(context, want[r].x + t * n_out, data[r].x + t * n_in);
        }
        store(&want[r], op->out[0].dtype, n * n_out);
        s.in[0][r] = data[r].bytes;
        s.want[r] = want[r].bytes;
        s.n_in[0][r] = s.n_want[r] = n;
    }
    check_streams(&s);
}

typedef struct unary_case {
    const unary_ideal *ideal;
    double p[3];
    int64_t n;
} unary_case;

static void unary_frame(const void *context, double *y, const double *x)
{
    const unary_case *c = context;
    for (int64_t i = 0; i < c->n; i++) {
        y[i] = (double)c->ideal->f((wide)x[i], c->p);
    }
}

/* With the parameters that the ideal is tried with, or the defaults; text: the first attribute's choice. */
static void test_unary(const char *name, ds_dtype dtype, ds_unary function, bool given,
                       const char *text)
{
    const ds_signature in = {.dtype = dtype, .rank = 2, .shape = {3, 5}, .rate = {1, 1}};
    const ds_op_def *def = ds_op_find(name);
    unary_case c = {&unary_ideals[function], {0}, 15};
    ds_attr attrs[3];
    size_t n = 0;
    for (; def->attrs[n].name != NULL; n++) {
        CHECK(n < 3);
        c.p[n] = given ? c.ideal->p[n] : def->attrs[n].x;
        attrs[n] =
            (ds_attr){def->attrs[n].name, def->attrs[n].kind, .value.x = c.p[n], .text = text};
    }
    ds_op *op = NULL;
    CHECK(ds_op_create(&op, NULL, def, attrs, given ? n : 0, &in, 1, NULL, 0) == DS_OK);
    stream_frames(op, dtype, dtype == DS_F32 ? 2e-6 : 1e-12, unary_frame, &c);
    ds_op_destroy(op);
}

static void test_all_unary(ds_dtype dtype)
{
#define UNARY(name, ID, ...)                              \
    test_unary(#name, dtype, DS_UNARY_##ID, false, NULL); \
    test_unary(#name, dtype, DS_UNARY_##ID, true, "none");
#define WHOLE(name, ID, ...) test_unary(#name, dtype, DS_UNARY_##ID, false, NULL);
#include "kernels/pointwise.def"
    test_unary("gelu", dtype, DS_UNARY_GELU_TANH, true, "tanh");
}

/* ---------------------------------------------------------------- within a frame */

/* Context: 0 softmax, 1 its logarithm; frames [2][6]. */
static void softmax_frame(const void *context, double *y, const double *x)
{
    for (int row = 0; row < 2; row++, x += 6, y += 6) {
        double sum = 0.0;
        for (int i = 0; i < 6; i++) {
            sum += exp(x[i]);
        }
        for (int i = 0; i < 6; i++) {
            y[i] = *(const int *)context == 0 ? exp(x[i]) / sum : x[i] - log(sum);
        }
    }
}

static void glu_frame(const void *context, double *y, const double *x)
{
    (void)context;
    for (int row = 0; row < 2; row++, x += 6, y += 3) {
        for (int i = 0; i < 3; i++) {
            y[i] = x[i] / (1.0 + exp(-x[i + 3]));
        }
    }
}

static void not_frame(const void *context, double *y, const double *x)
{
    (void)context;
    for (int i = 0; i < 12; i++) {
        y[i] = x[i] < 0.5;
    }
}

static void test_frame(const ds_op_def *def, ds_dtype dtype,
                       void (*f)(const void *context, double *y, const double *x), int context)
{
    const ds_signature in = {.dtype = dtype, .rank = 2, .shape = {2, 6}, .rate = {1, 1}};
    ds_op *op = NULL;
    CHECK(ds_op_create(&op, NULL, def, NULL, 0, &in, 1, NULL, 0) == DS_OK);
    stream_frames(op, dtype, dtype == DS_F32 ? 1e-6 : 1e-14, f, &context);
    ds_op_destroy(op);
}

int main(void)
{
    CHECK(every_ideal());
    for (int i = 0; i < 2; i++) {
        const ds_dtype dtype = i == 0 ? DS_F32 : DS_F64;
        for (int round = 0; round < 20; round++) {
#define BINARY(name, ID, ...) test_operands(#name, dtype, ideal_binary_##ID, false);
#define COMPARE(name, ID, ...) test_operands(#name, dtype, ideal_compare_##ID, false);
#define LOGICAL(name, ...) test_operands(#name, dtype, ideal_##name, true);
#include "kernels/pointwise.def"
            test_operands("where", dtype, NULL, false);
        }
        test_all_unary(dtype);
        test_frame(&ds_op_softmax, dtype, softmax_frame, 0);
        test_frame(&ds_op_log_softmax, dtype, softmax_frame, 1);
        test_frame(&ds_op_glu, dtype, glu_frame, 0);
    }
    test_frame(&ds_op_logical_not, DS_BOOL, not_frame, 0);
    return check_report();
}
