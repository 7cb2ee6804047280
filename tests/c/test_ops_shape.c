/* ops: operators that arrange frames and elements, streamed in chunks, against their meaning. */
#include "op_cases.h"

static char *random_frames(const ds_signature *s, int64_t n)
{
    const size_t n_elements = (size_t)(n * ds_signature_elements(s)),
                 size = ds_dtype_bytes(s->dtype);
    char *data = exact_copy(NULL, n_elements * size);
    for (size_t i = 0; i < n_elements * size; i++) {
        data[i] = (char)random_in(0, s->dtype == DS_BOOL ? 1 : 255);
    }
    return data;
}

static void fill_element(ds_dtype dtype, int64_t value, char *to)
{
    const float f = (float)value;
    const double d = (double)value;
    const int16_t i16 = (int16_t)value;
    const uint8_t b = (uint8_t)value;
    const void *from = dtype == DS_F32   ? (const void *)&f
                       : dtype == DS_F64 ? (const void *)&d
                       : dtype == DS_I64 ? (const void *)&value
                       : dtype == DS_I16 ? (const void *)&i16
                                         : (const void *)&b;
    memcpy(to, from, ds_dtype_bytes(dtype));
}

/* All frames of row r by the instance's meaning. */
static char *meaning(const op_case *c, const op_streams *s, size_t r, const char *weight)
{
    const ds_signature *out = &c->op->out[0];
    const int64_t n_elements = ds_signature_elements(out);
    const size_t size = ds_dtype_bytes(out->dtype);
    const int64_t n_in[STREAM_INPUTS] = {s->n_in[0][r], s->n_in[1][r], s->n_in[2][r]};
    char *want = exact_copy(NULL, (size_t)(s->n_want[r] * n_elements) * size), *to = want;
    for (int64_t m = 0; m < s->n_want[r]; m++) {
        for (int64_t e = 0; e < n_elements; e++, to += size) {
            const source from = c->from(c, m, e, n_in);
            if (from.input == FILL) {
                fill_element(out->dtype, c->def == &ds_op_pad ? c->p[5] : 0, to);
            } else if (from.input == WEIGHT) {
                memcpy(to, weight + (size_t)(from.frame * n_elements + from.element) * size, size);
            } else {
                const int64_t own = ds_signature_elements(&c->in[from.input]);
                CHECK(from.frame >= 0 && from.frame < n_in[from.input]);
                memcpy(to, s->in[from.input][r] + (size_t)(from.frame * own + from.element) * size,
                       size);
            }
        }
    }
    return want;
}

static void stream_case(const op_case *c)
{
    char *weight = c->n_weights > 0 ? random_frames(&c->weight, 1) : NULL;
    const void *weights[1] = {weight};
    op_streams s = {.op = c->op, .weights = weights, .n_rows = (size_t)random_in(1, STREAM_ROWS)};
    for (size_t r = 0; r < s.n_rows; r++) {
        int64_t n = random_in(0, 4) == 0 ? 0 : random_in(1, 20);
        if (c->def == &ds_op_frame && c->p[3] == 1) {
            n *= c->p[0];
        }
        for (size_t i = 0; i < c->n_inputs; i++) {
            s.n_in[i][r] = i > 0 && c->def == &ds_op_cut ? random_in(0, 20) : n;
            s.in[i][r] = random_frames(&c->in[i], s.n_in[i][r]);
        }
        s.n_want[r] = c->length(c, (const int64_t[]){s.n_in[0][r], s.n_in[1][r]});
        s.want[r] = meaning(c, &s, r, weight);
    }
    check_streams(&s);
    for (size_t r = 0; r < s.n_rows; r++) {
        for (size_t i = 0; i < c->n_inputs; i++) {
            free((void *)(uintptr_t)s.in[i][r]);
        }
        free((void *)(uintptr_t)s.want[r]);
    }
    free(weight);
}

static void test_arranging(void)
{
    static const ds_dtype dtypes[] = {DS_F32, DS_F64, DS_I64, DS_BOOL, DS_I16};
    for (int which = 0; which < N_CASE_MAKERS; which++) {
        for (int round = 0; round < 60; round++) {
            op_case c;
            make_case(&c, which, dtypes[round % 5]);
            stream_case(&c);
            ds_op_destroy(c.op);
        }
    }
}

/* Streams that must be of equal length: x comes out as it is. */
static void test_sync(void)
{
    for (int round = 0; round < 40; round++) {
        op_case c = {.n_inputs = 3};
        for (int i = 0; i < 3; i++) {
            c.in[i] = (ds_signature){.dtype = DS_I16, .rank = 1, .shape = {2 + i}, .rate = {1, 1}};
        }
        CHECK(ds_op_create(&c.op, NULL, &ds_op_sync, NULL, 0, c.in, 3, NULL, 0) == DS_OK);
        c.length = same_length;
        c.from = same_from;
        stream_case(&c);
        ds_op_destroy(c.op);
    }
}

/* ---------------------------------------------------------------- one vector for a stream */

static double reduce(const char *kind, const double *x, int64_t n, int64_t step)
{
    double y = 0.0;
    for (int64_t t = 0; t < n; t++) {
        const double v = x[t * step];
        if (kind[0] == 's' || kind[1] == 'e') {
            y += v;
        } else if (t == 0 || isnan(v) || (kind[1] == 'a' ? v > y : v < y)) {
            y = isnan(y) && t > 0 ? y : v;
        }
    }
    return kind[1] == 'e' ? y / (double)n : y;
}

static void test_reduce_frames(void)
{
    static const char *const kinds[] = {"sum", "mean", "max", "min"};
    for (int round = 0; round < 80; round++) {
        const ds_dtype dtype = round % 2 == 0 ? DS_F32 : DS_F64;
        const char *kind = kinds[round / 2 % 4];
        const ds_signature in = {.dtype = dtype, .rank = 1, .shape = {3}, .rate = {1, 1}};
        const ds_attr attr = {.name = "kind", .kind = DS_ATTR_CHOICE, .text = kind};
        ds_op *op = NULL;
        CHECK(ds_op_create(&op, NULL, &ds_op_reduce_frames, &attr, 1, &in, 1, NULL, 0) == DS_OK);
        CHECK(op->out[0].rate.num == 0 && op->n_carried == 1 && !op->same_counts);
        double x[STREAM_ROWS][30 * 3], y[STREAM_ROWS][3];
        float x_float[STREAM_ROWS][30 * 3], y_float[STREAM_ROWS][3];
        op_streams s = {.op = op,
                        .k = &ds_kernels_for(DS_ISA_REF)->real[dtype == DS_F64],
                        .n_rows = STREAM_ROWS,
                        .tolerance = dtype == DS_F32 ? 1e-7 : 1e-15};
        for (size_t r = 0; r < s.n_rows; r++) {
            const int64_t n = r == 0 ? 0 : random_in(1, 30);
            for (int i = 0; i < 90; i++) {
                x_float[r][i] = (float)random_in(-1000, 1000) / 7.0f;
                x[r][i] = (double)x_float[r][i];
                if (round % 5 == 0 && i == 7) {
                    x[r][i] = NAN;
                    x_float[r][i] = NAN;
                }
            }
            for (int e = 0; e < 3; e++) {
                y[r][e] = reduce(kind, &x[r][e], n, 3);
                y_float[r][e] = (float)y[r][e];
            }
            s.n_in[0][r] = n;
            s.n_want[r] = n > 0 ? 1 : 0;
            s.in[0][r] = dtype == DS_F32 ? (const char *)x_float[r] : (const char *)x[r];
            s.want[r] = dtype == DS_F32 ? (const char *)y_float[r] : (const char *)y[r];
        }
        check_streams(&s);
        int64_t first[1];
        ds_op_need(op, 0, first);
        CHECK(first[0] == DS_NEVER);
        ds_op_destroy(op);
    }
}

/* ---------------------------------------------------------------- casts */

static void check_cast(ds_dtype from, const void *x, const char *to, const void *y, size_t y_bytes)
{
    const ds_signature in = {.dtype = from, .rank = 0, .rate = {1, 1}};
    const ds_attr attr = {.name = "to", .kind = DS_ATTR_CHOICE, .text = to};
    ds_op *op = NULL;
    CHECK(ds_op_create(&op, NULL, &ds_op_cast, &attr, 1, &in, 1, NULL, 0) == DS_OK);
    const int64_t n = (int64_t)(y_bytes / ds_dtype_bytes(op->out[0].dtype));
    const op_streams s = {
        .op = op, .n_rows = 1, .in = {{x}}, .n_in = {{n}}, .want = {y}, .n_want = {n}};
    check_streams(&s);
    ds_op_destroy(op);
}

static void test_cast(void)
{
    static const double real[] = {0.0, -0.0, 1.9, -1.9, 1e300, -1e300, NAN, 0x1p62, -0x1p63};
    static const int64_t whole[] = {
        0, 0, 1, -1, INT64_MIN, INT64_MIN, INT64_MIN, (int64_t)1 << 62, INT64_MIN};
    static const uint8_t truth[] = {0, 0, 1, 1, 1, 1, 1, 1, 1};
    static const float single[] = {0.0f,      -0.0f, 1.9f,    -1.9f,   INFINITY,
                                   -INFINITY, NAN,   0x1p62f, -0x1p63f};
    check_cast(DS_F64, real, "int64", whole, sizeof whole);
    check_cast(DS_F64, real, "bool", truth, sizeof truth);
    check_cast(DS_F64, real, "float32", single, sizeof single);
    check_cast(DS_F64, real, "float64", real, sizeof real);
    check_cast(DS_F32, single, "int64", whole, sizeof whole);
    check_cast(DS_F32, single, "bool", truth, sizeof truth);
    static const int64_t counts[] = {5, -7, 0, ((int64_t)1 << 53) + 1};
    static const double as_real[] = {5.0, -7.0, 0.0, 0x1p53};
    static const float as_single[] = {5.0f, -7.0f, 0.0f, 0x1p53f};
    static const uint8_t as_truth[] = {1, 1, 0, 1};
    check_cast(DS_I64, counts, "float64", as_real, sizeof as_real);
    check_cast(DS_I64, counts, "float32", as_single, sizeof as_single);
    check_cast(DS_I64, counts, "bool", as_truth, sizeof as_truth);
    static const uint8_t bits[] = {1, 0, 1};
    static const float bits_single[] = {1.0f, 0.0f, 1.0f};
    static const int64_t bits_whole[] = {1, 0, 1};
    check_cast(DS_BOOL, bits, "float32", bits_single, sizeof bits_single);
    check_cast(DS_BOOL, bits, "int64", bits_whole, sizeof bits_whole);
    static const int16_t samples[] = {-32768, 0, 32767};
    static const float samples_single[] = {-32768.0f, 0.0f, 32767.0f};
    check_cast(DS_I16, samples, "float32", samples_single, sizeof samples_single);
}

/* ---------------------------------------------------------------- pads of extreme values */

static void test_pad_values(void)
{
    static const struct {
        ds_dtype dtype;
        double value;
        ds_status status;
    } cases[] = {
        {DS_F32, -INFINITY, DS_OK},  {DS_F64, NAN, DS_OK},         {DS_I64, -5.0, DS_OK},
        {DS_I64, 0.5, DS_ARGUMENT},  {DS_I64, NAN, DS_ARGUMENT},   {DS_BOOL, 1.0, DS_OK},
        {DS_BOOL, 2.0, DS_ARGUMENT}, {DS_BOOL, -1.0, DS_ARGUMENT}, {DS_I16, -32767.0, DS_OK},
        {DS_I16, 4e4, DS_ARGUMENT},  {DS_I64, 1e30, DS_ARGUMENT}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ds_signature in = {.dtype = cases[i].dtype, .rate = {1, 1}};
        const ds_attr attrs[] = {
            {.name = "left", .kind = DS_ATTR_INT, .value.i = 3},
            {.name = "value", .kind = DS_ATTR_REAL, .value.x = cases[i].value}};
        ds_op *op = NULL;
        CHECK(ds_op_create(&op, NULL, &ds_op_pad, attrs, 2, &in, 1, NULL, 0) == cases[i].status);
        if (op == NULL) {
            continue;
        }
        char y[3 * 8];
        const ds_target out = {y, 0, 3};
        const ds_window window = {NULL, 0, 0};
        const ds_counts count = {{0, 0}, {0, 1}};
        const bool ended = false;
        const ds_run run = {
            .n_rows = 1, .in = &window, .out = &out, .count = &count, .ended = &ended};
        op->def->forward(op, &run);
        for (int j = 0; j < 3; j++) {
            float f;
            double d;
            int64_t l;
            int16_t h;
            switch (cases[i].dtype) {
            case DS_F32:
                memcpy(&f, y + 4 * j, 4);
                CHECK(isinf(f) && f < 0.0f);
                break;
            case DS_F64:
                memcpy(&d, y + 8 * j, 8);
                CHECK(isnan(d));
                break;
            case DS_I64:
                memcpy(&l, y + 8 * j, 8);
                CHECK(l == -5);
                break;
            case DS_I16:
                memcpy(&h, y + 2 * j, 2);
                CHECK(h == -32767);
                break;
            default:
                CHECK(y[j] == 1);
                break;
            }
        }
        ds_op_destroy(op);
    }
}

int main(void)
{
    test_arranging();
    test_sync();
    test_reduce_frames();
    test_cast();
    test_pad_values();
    return check_report();
}
