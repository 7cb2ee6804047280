/* ops: what operators refuse, of attributes, shapes, types and lengths; and values that no law draws. */
#include "every_op.h"
#include "main.h"

static const struct {
    const char *text;
    ds_status status;
    const char *words;
} refusals[] = {
#define REFUSED(name, status, example, words) {OP_TEXT(name, example) status, words},
#include "op_cases.def"
};

TEST(refusals)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        op_text text = read_op(refusals[i].text);
        ds_op *op = NULL;
        if (!failed(create_op(&op, &text), refusals[i].status, refusals[i].words)) {
            fprintf(stderr, "%s: expected %s: %s\n", refusals[i].text,
                    ds_status_name(refusals[i].status), refusals[i].words);
            CHECK(!"refused so");
        }
        CHECK(op == NULL);
        free_op_text(&text);
    }
}

/* ---------------------------------------------------------------- lengths */

/* Lengths are refused where they are known to be wrong, at the end or before it, and not sooner. */
TEST(lengths)
{
    static const struct {
        const char *text;
        ds_pair in[3];
        bool ended;
        const char *words; /* NULL: no failure */
    } cases[] = {
#define GIVEN(...) {__VA_ARGS__}
#define LENGTHS(name, example, counts, ended, words) \
    {OP_TEXT(name, example) GIVEN counts, ended, words},
#include "op_cases.def"
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_text text = read_op(cases[i].text);
        ds_op *op = NULL;
        CHECK(create_op(&op, &text) == DS_OK);
        const ds_status status = ds_op_check(op, cases[i].in, cases[i].ended);
        const bool good = cases[i].words == NULL ? status == DS_OK
                                                 : failed(status, DS_SHAPE, cases[i].words) &&
                                                       strcmp(ds_last_error(), cases[i].words) == 0;
        if (!good)
            fprintf(stderr, "%s, case %zu: %s\n", cases[i].text, i, ds_last_error());
        CHECK(good);
        ds_op_destroy(op);
        free_op_text(&text);
    }
}

/* ---------------------------------------------------------------- values */

/* A stream of n frames gives exactly these bytes. */
static void gives(const char *words, const void *x, int64_t n, const void *y, size_t n_bytes)
{
    op_text text = read_op(words);
    ds_op *op = NULL;
    CHECK(create_op(&op, &text) == DS_OK);
    driven d = drive(op, &ds_kernels_for(DS_ISA_REF)->real[0], NULL);
    const size_t x_bytes = (size_t)n * ds_signature_bytes(&op->in[0]);
    char *frames[DS_MAX_INPUTS] = {exact_room(x_bytes)};
    memcpy(frames[0], x, x_bytes);
    const int64_t lengths[DS_MAX_INPUTS] = {n};
    op_stream s = open_op_stream(&d, frames, lengths, false);
    feed_op_whole(&d, &s);
    const bool good = (size_t)s.n[0] * ds_signature_bytes(&op->out[0]) == n_bytes &&
                      memcmp(s.y[0], y, n_bytes) == 0;
    if (!good)
        fprintf(stderr, "%s\n", words);
    CHECK(good);
    close_op_stream(&d, &s);
    drive_no_more(&d);
    free(frames[0]);
    ds_op_destroy(op);
    free_op_text(&text);
}

#define CAST(from, to, x, y)                                                 \
    gives("{'op':'cast','in':[['" from "',[]]],'attrs':{'to':'" to "'}}", x, \
          (int64_t)(sizeof(x) / sizeof(x)[0]), y, sizeof(y))

TEST(cast)
{
    static const double real[] = {0.0, -0.0, 1.9, -1.9, 1e300, -1e300, NAN, 0x1p62, -0x1p63};
    static const int64_t whole[] = {
        0, 0, 1, -1, INT64_MIN, INT64_MIN, INT64_MIN, (int64_t)1 << 62, INT64_MIN};
    static const uint8_t truth[] = {0, 0, 1, 1, 1, 1, 1, 1, 1};
    static const float single[] = {0.0f,      -0.0f, 1.9f,    -1.9f,   INFINITY,
                                   -INFINITY, NAN,   0x1p62f, -0x1p63f};
    CAST("float64", "int64", real, whole);
    CAST("float64", "bool", real, truth);
    CAST("float64", "float32", real, single);
    CAST("float64", "float64", real, real);
    CAST("float32", "int64", single, whole);
    CAST("float32", "bool", single, truth);
    static const int64_t counts[] = {5, -7, 0, ((int64_t)1 << 53) + 1};
    static const double as_real[] = {5.0, -7.0, 0.0, 0x1p53};
    static const float as_single[] = {5.0f, -7.0f, 0.0f, 0x1p53f};
    static const uint8_t as_truth[] = {1, 1, 0, 1};
    CAST("int64", "float64", counts, as_real);
    CAST("int64", "float32", counts, as_single);
    CAST("int64", "bool", counts, as_truth);
    static const uint8_t bits[] = {1, 0, 1};
    static const float bits_single[] = {1.0f, 0.0f, 1.0f};
    static const int64_t bits_whole[] = {1, 0, 1};
    CAST("bool", "float32", bits, bits_single);
    CAST("bool", "int64", bits, bits_whole);
    static const int16_t samples[] = {-32768, 0, 32767};
    static const float samples_single[] = {-32768.0f, 0.0f, 32767.0f};
    CAST("int16", "float32", samples, samples_single);
}

/* Two frames of padding before one of zero. */
#define PAD(type, value, c_type, ...)                                                 \
    gives("{'op':'pad','in':[['" type "',[]]],'attrs':{'left':2,'value':" value "}}", \
          &(const c_type){0}, 1, (const c_type[]){__VA_ARGS__}, 3 * sizeof(c_type))

TEST(pad)
{
    PAD("float32", "'-inf'", float, -INFINITY, -INFINITY, 0);
    PAD("float64", "'nan'", double, NAN, NAN, 0);
    PAD("int64", "-5.0", int64_t, -5, -5, 0);
    PAD("bool", "1.0", uint8_t, 1, 1, 0);
    PAD("int16", "-32767.0", int16_t, -32767, -32767, 0);
}
