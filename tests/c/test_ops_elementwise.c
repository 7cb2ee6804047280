/* ops: elementwise, logical, unary, softmax and glu, streamed in random chunks, against libm. */
#include "op_stream.h"
#include "ops/registry.h"

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

static double apply(const char *name, const double *v)
{
    const double a = v[0], b = v[1];
    switch (name[0]) {
    case 'a': return a + b;
    case 's': return a - b;
    case 'd': return a / b;
    case 'p': return pow(a, b);
    case 'e': return a >= b && a <= b;
    case 'n': return a < b || a > b;
    case 'w': return a > 0.5 ? b : v[2];
    case 'm': return name[1] == 'u' ? a * b : (name[1] == 'i') == (a < b) ? a : b;
    case 'g': return name[1] == 't' ? a > b : a >= b;
    default: break;
    }
    if (strcmp(name, "logical_and") == 0) {
        return a > 0.5 && b > 0.5;
    }
    if (strcmp(name, "logical_or") == 0) {
        return a > 0.5 || b > 0.5;
    }
    return name[1] == 't' ? a < b : a <= b; /* lt, le */
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

static void test_operands(const char *name, ds_dtype real, int n_operands)
{
    static values data[3][STREAM_ROWS], constant[3], want[STREAM_ROWS];
    const ds_dtype first = name[0] == 'w' || strncmp(name, "logical", 7) == 0 ? DS_BOOL : real;
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
        operand[i] = (ds_signature){.dtype = i == 0 || name[0] != 'w' ? first : real,
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
                    .k = kernels(real),
                    .n_rows = STREAM_ROWS,
                    .tolerance = name[0] == 'p'   ? 1e-5
                                 : real == DS_F32 ? 1e-6
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
            want[r].x[j] = apply(name, v);
        }
        store(&want[r], op->out[0].dtype, n * n_elements);
        s.want[r] = want[r].bytes;
        s.n_want[r] = n;
    }
    check_streams(&s);
    ds_op_destroy(op);
}

/* ---------------------------------------------------------------- one operand */

static double normal(double x)
{
    return 0.5 * (1.0 + erf(x / sqrt(2.0)));
}

static double unary(const char *name, double x, const double *p)
{
    static const struct {
        const char *name;
        double (*f)(double);
    } known[] = {{"tanh", tanh},   {"exp", exp},   {"log", log},   {"sqrt", sqrt},
                 {"abs", fabs},    {"sin", sin},   {"cos", cos},   {"log1p", log1p},
                 {"expm1", expm1}, {"erf", erf},   {"log2", log2}, {"log10", log10},
                 {"floor", floor}, {"ceil", ceil}, {"round", rint}, {"sinh", sinh},
                 {"cosh", cosh},   {"asin", asin}, {"acos", acos},  {"atan", atan},
                 {"asinh", asinh}, {"acosh", acosh}, {"atanh", atanh}, {"trunc", trunc},
                 {"erfc", erfc}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(name, known[i].name) == 0) {
            return known[i].f(x);
        }
    }
    const double sigmoid = 1.0 / (1.0 + exp(-x));
    switch (name[0] * 256 + name[2]) {
    case 'r' * 256 + 'l': return x > 0.0 ? x : 0.0;
    case 'g' * 256 + 'l':
        return p[0] > 0.5
                   ? 0.5 * x * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)))
                   : x * normal(x);
    case 's' * 256 + 'l': return x * sigmoid;
    case 's' * 256 + 'g': return name[3] == 'm' ? sigmoid : (x > 0.0) - (x < 0.0);
    case 'r' * 256 + 'q': return 1.0 / sqrt(x);
    case 'n' * 256 + 'g': return -x;
    case 'r' * 256 + 'c': return 1.0 / x;
    case 's' * 256 + 'u': return x * x;
    case 'c' * 256 + 'a': return fmin(fmax(x, p[0]), p[1]);
    case 's' * 256 + 'f': return x * p[0] > p[1] ? x : log1p(exp(x * p[0])) / p[0];
    case 'l' * 256 + 'g': return log(sigmoid);
    case 'e' * 256 + 'u': return x < 0.0 ? p[0] * expm1(x) : p[1] * x;
    default: CHECK(false); return 0.0;
    }
}

/* Streams `op` against f, which turns a frame into a frame. */
static void stream_frames(const ds_op *op, ds_dtype real, double tolerance,
                          void (*f)(const void *context, double *y, const double *x),
                          const void *context)
{
    static values data[STREAM_ROWS], want[STREAM_ROWS];
    const int64_t n_in = ds_signature_elements(&op->in[0]);
    const int64_t n_out = ds_signature_elements(&op->out[0]);
    op_streams s = {.op = op, .k = kernels(real), .n_rows = STREAM_ROWS, .tolerance = tolerance};
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
    const char *name;
    double p[2];
    int64_t n;
} unary_case;

static void unary_frame(const void *context, double *y, const double *x)
{
    const unary_case *c = context;
    for (int64_t i = 0; i < c->n; i++) {
        y[i] = unary(c->name, x[i], c->p);
    }
}

static void test_unary(const char *name, ds_dtype real, const ds_attr *attrs, size_t n_attrs,
                       double p0, double p1)
{
    const ds_signature in = {.dtype = real, .rank = 2, .shape = {3, 5}, .rate = {1, 1}};
    const unary_case c = {name, {p0, p1}, 15};
    ds_op *op = NULL;
    CHECK(ds_op_create(&op, NULL, ds_op_find(name), attrs, n_attrs, &in, 1, NULL, 0) == DS_OK);
    stream_frames(op, real, real == DS_F32 ? 2e-6 : 1e-12, unary_frame, &c);
    ds_op_destroy(op);
}

static ds_attr attr_real(const char *name, double x)
{
    return (ds_attr){.name = name, .kind = DS_ATTR_REAL, .value.x = x};
}

static void test_all_unary(ds_dtype real)
{
    static const char *const plain[] = {
        "relu",  "gelu", "silu",  "sigmoid", "tanh",       "exp",    "log",       "sqrt", "rsqrt",
        "abs",   "neg",  "sin",   "cos",     "log1p",      "expm1",  "erf",       "log2", "log10",
        "floor", "ceil", "round", "sign",    "reciprocal", "square", "logsigmoid",
        "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "trunc", "erfc"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        test_unary(plain[i], real, NULL, 0, 0.0, 0.0);
    }
    const ds_attr tanh_form = {.name = "approximate", .kind = DS_ATTR_CHOICE, .text = "tanh"};
    test_unary("gelu", real, &tanh_form, 1, 1.0, 0.0);
    const ds_attr limits[] = {attr_real("max", 1.5), attr_real("min", -0.25)};
    test_unary("clamp", real, limits, 2, -0.25, 1.5);
    test_unary("clamp", real, limits, 1, -INFINITY, 1.5);
    test_unary("clamp", real, NULL, 0, -INFINITY, INFINITY);
    const ds_attr bend[] = {attr_real("beta", 2.0), attr_real("threshold", 3.0)};
    test_unary("softplus", real, bend, 2, 2.0, 3.0);
    test_unary("softplus", real, NULL, 0, 1.0, 20.0);
    const ds_attr below[] = {attr_real("alpha", 1.5), attr_real("scale", 0.75)};
    test_unary("elu", real, below, 2, 1.5, 0.75);
    test_unary("elu", real, NULL, 0, 1.0, 1.0);
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
    static const char *const two[] = {"add",     "sub", "mul", "div",         "minimum",
                                      "maximum", "pow", "eq",  "ne",          "lt",
                                      "le",      "gt",  "ge",  "logical_and", "logical_or"};
    for (int i = 0; i < 2; i++) {
        const ds_dtype real = i == 0 ? DS_F32 : DS_F64;
        for (int round = 0; round < 20; round++) {
            for (size_t j = 0; j < sizeof two / sizeof two[0]; j++) {
                test_operands(two[j], real, 2);
            }
            test_operands("where", real, 3);
        }
        test_all_unary(real);
        test_frame(&ds_op_softmax, real, softmax_frame, 0);
        test_frame(&ds_op_log_softmax, real, softmax_frame, 1);
        test_frame(&ds_op_glu, real, glu_frame, 0);
    }
    test_frame(&ds_op_logical_not, DS_BOOL, not_frame, 0);
    return check_report();
}
