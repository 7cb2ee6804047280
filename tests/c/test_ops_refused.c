/* ops: what operators refuse, of attributes, shapes, types and lengths; and values that no law draws. */
#include "every_op.h"
#include "main.h"

#define FRAME "'in':[['float32',[3]]]"
#define TWO(first, second) "'in':[" first "," second "]"
#define CONV2D "{'op':'conv2d','in':[['float32',[4,6]]],'weights':[[6,6,2,3]],'attrs':"
#define UP2D "{'op':'conv_transpose2d','in':[['float32',[4,6]]],'weights':[[6,6,2,3]],'attrs':"
#define CONV1D "{'op':'conv1d','in':[['float32',[6]]],'weights':[[4,6,3]],'attrs':"
#define OF8 "'in':[['float32',[8]]]"

static const struct {
    const char *text;
    ds_status status;
    const char *words;
} refusals[] = {
    /* along the op_stream */
    {"{'op':'pad','attrs':{'left':-1}}", DS_ARGUMENT, "pad: "},
    {"{'op':'pad','in':[['int64',[]]],'attrs':{'value':0.5}}", DS_ARGUMENT, "pad: "},
    {"{'op':'pad','in':[['int64',[]]],'attrs':{'value':'nan'}}", DS_ARGUMENT, "pad: "},
    {"{'op':'pad','in':[['int64',[]]],'attrs':{'value':1e30}}", DS_ARGUMENT, "pad: "},
    {"{'op':'pad','in':[['bool',[]]],'attrs':{'value':2.0}}", DS_ARGUMENT, "pad: "},
    {"{'op':'pad','in':[['bool',[]]],'attrs':{'value':-1.0}}", DS_ARGUMENT, "pad: "},
    {"{'op':'pad','in':[['int16',[]]],'attrs':{'value':4e4}}", DS_ARGUMENT, "pad: "},
    {"{'op':'slice','attrs':{'step':0}}", DS_ARGUMENT, "slice: "},
    {"{'op':'slice','attrs':{'crop':-2}}", DS_ARGUMENT, "slice: "},
    {"{'op':'delay','attrs':{'frames':-1}}", DS_ARGUMENT, "delay: "},
    {"{'op':'frame','attrs':{'size':0,'step':1}}", DS_ARGUMENT, "frame: "},
    {"{'op':'frame','attrs':{'size':4,'step':2,'exact':1}}", DS_ARGUMENT, "frame: "},
    {"{'op':'frame','attrs':{'size':4,'step':4,'exact':2}}", DS_ARGUMENT, "frame: "},
    {"{'op':'frame','attrs':{'size':1099511627775,'step':4,'dilation':3}}", DS_ARGUMENT, "frame: "},
    {"{'op':'frame','in':[['float32',[1,1,1,1,1,1]]],'attrs':{'size':2,'step':1}}", DS_SHAPE,
     "frame: "},
    {"{'op':'cut'," TWO("['float32',[3],[1,1]]", "['float32',[3],[1,2]]") "}", DS_MISMATCH,
     "cut: "},
    {"{'op':'cut','attrs':{'length':[1,3]}," TWO("['float32',[3],[1,1]]",
                                                 "['float32',[3],[1,2]]") "}",
     DS_MISMATCH, "cut: "},
    {"{'op':'cut','attrs':{'length':[1,0]}," TWO("['float32',[3]]", "['float32',[3]]") "}",
     DS_ARGUMENT, "cut: "},
    {"{'op':'cut','attrs':{'length':[3,1]}," TWO("['float32',[3]]", "['float32',[3]]") "}",
     DS_ARGUMENT, "cut: "},
    {"{'op':'cut','attrs':{'length':[1]}," TWO("['float32',[3]]", "['float32',[3]]") "}",
     DS_ARGUMENT, "cut: "},
    {"{'op':'table'}", DS_SHAPE, "table: "},
    {"{'op':'unstack','in':[['int64',[]]]}", DS_SHAPE, "unstack: "},
    /* within a frame */
    {"{'op':'permute'," FRAME ",'attrs':{'order':[0,1]}}", DS_SHAPE, "permute: "},
    {"{'op':'permute'," FRAME ",'attrs':{'order':[1]}}", DS_SHAPE, "permute: "},
    {"{'op':'reshape'," FRAME ",'attrs':{'shape':[2,2]}}", DS_SHAPE, "reshape: "},
    {"{'op':'reshape'," FRAME ",'attrs':{'shape':[-3,-1]}}", DS_SHAPE, "reshape: "},
    {"{'op':'expand'," FRAME ",'attrs':{'shape':[2,4]}}", DS_SHAPE, "expand: "},
    {"{'op':'narrow'," FRAME ",'attrs':{'axis':1,'length':1}}", DS_SHAPE, "narrow: "},
    {"{'op':'narrow'," FRAME ",'attrs':{'axis':0,'start':2,'length':2}}", DS_SHAPE, "narrow: "},
    {"{'op':'glu'," FRAME "}", DS_SHAPE, "glu: "},
    {"{'op':'cat','attrs':{'axis':1}," TWO("['float32',[3]]", "['float32',[3]]") "}", DS_SHAPE,
     "cat: "},
    {"{'op':'cat','attrs':{'axis':-1}," TWO("['float32',[3]]", "['float32',[3]]") "}", DS_SHAPE,
     "cat: "},
    {"{'op':'cat','attrs':{'axis':0}," TWO("['float32',[3]]", "['float64',[2]]") "}", DS_DTYPE,
     "cat: "},
    {"{'op':'pad_features'," FRAME ",'attrs':{'axis':1}}", DS_SHAPE,
     "there is no feature dimension 1"},
    {"{'op':'pad_features'," FRAME ",'attrs':{'axis':0,'left':4,'mode':'circular'}}", DS_SHAPE,
     "size 3 can be padded by 3 at most in this mode, got 4"},
    {"{'op':'rfft','in':[['float32',[]]]}", DS_SHAPE, "rfft: its input needs a feature dimension"},
    {"{'op':'rfft','in':[['int64',[4]]]}", DS_DTYPE, "rfft: "},
    {"{'op':'rfft','in':[['float32',[16777217]]]}", DS_LIMIT, "its size must be at most 16777216"},
    {"{'op':'irfft','attrs':{'size':6}," TWO("['float32',[3]]", "['float32',[3]]") "}", DS_SHAPE,
     "6 numbers come of 4 in the last feature dimension, got 3"},
    {"{'op':'irfft'," TWO("['float32',[3]]", "['float32',[3]]") "}", DS_ARGUMENT, "size"},
    {"{'op':'irfft','attrs':{'size':0}," TWO("['float32',[1]]", "['float32',[1]]") "}", DS_ARGUMENT,
     "irfft: "},
    {"{'op':'fft'," TWO("['float32',[3]]", "['float32',[4]]") "}", DS_SHAPE,
     "real and imaginary parts must have the same shape"},
    {"{'op':'ifft'," TWO("['float32',[3]]", "['float64',[3]]") "}", DS_DTYPE, "ifft: "},
    /* element by element */
    {"{'op':'add'," TWO("['float32',[3]]", "['float32',[2]]") "}", DS_SHAPE,
     "add: features of shapes (3,) and (2,)"},
    {"{'op':'add'," TWO("['float32',[3]]", "['float64',[3]]") "}", DS_DTYPE, "add: "},
    {"{'op':'add','attrs':{'order':[0,1]}," TWO("['float32',[3]]", "['float32',[3]]") "}",
     DS_ARGUMENT, "add: "},
    {"{'op':'add','attrs':{'order':[0,2]}," TWO("['float32',[3]]", "['float32',[3]]") "}",
     DS_ARGUMENT, "add: "},
    {"{'op':'add','attrs':{'order':[0]}}", DS_ARGUMENT, "add: "},
    {"{'op':'add'}", DS_ARGUMENT, "add: "},
    {"{'op':'logical_and'," TWO("['float32',[3]]", "['float64',[3]]") "}", DS_DTYPE,
     "logical_and: "},
    {"{'op':'logical_not'}", DS_DTYPE, "logical_not: "},
    {"{'op':'relu','in':[['int64',[3]]]}", DS_DTYPE, "relu: "},
    /* products */
    {"{'op':'linear'," FRAME ",'attrs':{'x':1},'weights':[[4,3]]}", DS_ARGUMENT,
     "unknown attribute"},
    {CONV1D "{'stride':0}}", DS_ARGUMENT, "stride must be 1 to"},
    {CONV1D "{'dilation':1073741824}}", DS_ARGUMENT, "dilation must be 1 to"},
    {CONV1D "{'left':-1}}", DS_ARGUMENT, "left padding must be 0 to"},
    {CONV1D "{'groups':4}}", DS_ARGUMENT, "groups must divide 6 input"},
    {CONV1D "{'groups':2}}", DS_SHAPE,
     "expected an input of 12 channels, as its weight of shape (4, 6, 3) has, got 6"},
    {"{'op':'conv_transpose1d','in':[['float32',[6]]],'attrs':{'groups':2},'weights':[[4,6,3]]}",
     DS_SHAPE, "expected an input of 4 channels, as its weight of shape (4, 6, 3) has, got 6"},
    {"{'op':'conv_transpose1d','in':[['float32',[6]]],'attrs':{'output_padding':1},"
     "'weights':[[6,4,3]]}",
     DS_ARGUMENT, "output_padding must be below"},
    {CONV2D "{'stride':[1]}}", DS_ARGUMENT, "stride must be 2 numbers, got 1"},
    {CONV2D "{'stride':[1,0]}}", DS_ARGUMENT, "stride must be 1 to"},
    {CONV2D "{'padding':[0,0,0,-1]}}", DS_ARGUMENT, "right padding must be"},
    {CONV2D "{'dilation':[1,2]}}", DS_SHAPE, "of 5 positions doesn't fit the 4"},
    {CONV2D "{'axis':2}}", DS_ARGUMENT, "axis must be 0 or 1, got 2"},
    {CONV2D "{'groups':4}}", DS_ARGUMENT,
     "groups must divide 6 input and 6 output channels, got 4"},
    {CONV2D "{'groups':2}}", DS_SHAPE,
     "expected an input of 12 channels, as its weight of shape (6, 6, 2, 3) has, got 6"},
    {CONV2D "{'inner_mode':'reflect','padding':[9,9,4,0]}}", DS_SHAPE,
     "4 positions within a frame can be padded by 3 at most"},
    {"{'op':'conv2d','weights':[[6,6,2,3]]}", DS_SHAPE,
     "expected an input of shape (positions, channels)"},
    {"{'op':'conv2d','in':[['float32',[4,6]]],'weights':[[6,6]]}", DS_SHAPE,
     "'weight' must have four dimensions"},
    {UP2D "{'output_padding':[1,0]}}", DS_ARGUMENT, "output_padding must be"},
    {UP2D "{'padding':[0,3]}}", DS_SHAPE, "padding 3 drops all of the 6 positions"},
    {"{'op':'conv_transpose2d','in':[['float32',[4,5]]],'weights':[[6,6,2,3]]}", DS_SHAPE,
     "expected an input of 6 channels, as its weight of shape (6, 6, 2, 3) has, got 5"},
    /* recurrences */
    {"{'op':'lstm'," OF8 ",'attrs':{'layers':2},'weights':"
     "[[64,8],[64,16],[64],[64],[64,16],[64,17],[64],[64]]}",
     DS_SHAPE, "'weight_hh_l1' must have shape (64, 16), got (64, 17)"},
    {"{'op':'lstm'," OF8 ",'attrs':{'bidirectional':1},'weights':"
     "[[64,8],[64,16],[64],[64],[64,8],[64,16],[63],[64]]}",
     DS_SHAPE, "'bias_ih_l0_reverse' must have shape (64,), got (63,)"},
    {"{'op':'lstm'," OF8 ",'attrs':{'bidirectional':1},'weights':"
     "[[64,8],[64,16],[64],[64],[64,8],[64,16],[64],[64],[2,16],[1,16]]}",
     DS_SHAPE, "'c0' must have shape (2, 16), got (1, 16)"},
    {"{'op':'lstm'," OF8 ",'attrs':{'layers':2},'weights':"
     "[[64,8],[64,16],[64],[64],[64,16],[64,16],[64]]}",
     DS_SHAPE, "expected 8 weights, then perhaps h0 and c0, got 7"},
    {"{'op':'lstm'," OF8 ",'attrs':{'bidirectional':1,'projection':5},'weights':"
     "[[64,8],[64,5],[64],[64],[5,16],[64,8],[64,5],[64],[64],[5,15]]}",
     DS_SHAPE, "'weight_hr_l0_reverse' must have shape (5, 16), got (5, 15)"},
    {"{'op':'lstm'," OF8 ",'attrs':{'projection':-1},'weights':[[64,8],[64,5],[64],[64],[5,16]]}",
     DS_ARGUMENT, "'projection' must be at least 0, got -1"},
    {"{'op':'lstm'," OF8 ",'attrs':{'projection':5},'weights':[[64,8],[3,5],[64],[64],[5,16]]}",
     DS_SHAPE, "'weight_hh_l0' must have shape (4 * hidden, projection), got (3, 5)"},
    {"{'op':'gru'," OF8 ",'attrs':{'layers':2},'weights':"
     "[[48,8],[48,16],[48],[48],[48,16],[48,16],[48],[48],[2,3]]}",
     DS_SHAPE, "gru: its weight 'h0' must have shape (2, 16), got (2, 3)"},
    {"{'op':'gru'," OF8 ",'weights':[[48,9],[48,16],[48],[48]]}", DS_SHAPE,
     "gru: expected an input of 9 features, as its weight 'weight_ih_l0' of shape (48, 9) has, got "
     "8"},
    {"{'op':'rnn'," OF8 ",'attrs':{'layers':0},'weights':[[16,8],[16,16],[16],[16]]}", DS_ARGUMENT,
     "rnn: layers must be 1 to"},
    {"{'op':'rnn'," OF8 ",'attrs':{'bias':2},'weights':[[16,8],[16,16],[16],[16]]}", DS_ARGUMENT,
     "rnn: bias must be 0 or 1, got 2"},
    {"{'op':'rnn','in':[['float32',[2,3,8]]],'weights':[[16,8],[16,16],[16],[16]]}", DS_SHAPE,
     "rnn: expected an input of shape (features,) or (lanes, features), got (2, 3, 8)"},
    {"{'op':'rnn_within'," OF8 ",'weights':[[16,8],[16,16],[16],[16]]}", DS_SHAPE,
     "rnn_within: expected an input of shape (steps, features) or (lanes, steps, features), got "
     "(8,)"},
    {"{'op':'gru_cell'," OF8 ",'weights':[[48,8],[47,16]]}", DS_SHAPE,
     "gru_cell: its weight 'weight_hh' must have shape (48, 16), got (47, 16)"},
    {"{'op':'rnn_cell','in':[['float32',[]]],'weights':[[16,8],[16,16]]}", DS_SHAPE,
     "rnn_cell: expected an input of shape (..., features), got ()"},
    {"{'op':'lstm_cell'," TWO("['float32',[8]]", "['float32',[16]]") ",'weights':[[64,8],[64,16]]}",
     DS_ARGUMENT, "expected 1 input or 3, got 2"},
    {"{'op':'lstm_cell','in':[['float32',[8]],['float32',[16]],['float32',[15]]],"
     "'weights':[[64,8],[64,16]]}",
     DS_SHAPE, "a state of shape (16,), got (15,)"},
    {"{'op':'gru_cell','in':[['float32',[8]],['float32',[16]],['float32',[15]]],"
     "'weights':[[48,8],[48,16]]}",
     DS_ARGUMENT, "expected 1 input or 2, got 3"},
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
        {"{'op':'sync','in':[['float32',[3]],['float32',[3]],['float32',[3]]]}",
         {{12, 12}, {12, 12}, {11, 11}},
         true,
         "sync: lengths 12 and 11 differ at the end of the stream"},
        {"{'op':'sync'," TWO("['float32',[3]]", "['float32',[3]]") "}",
         {{12, 12}, {11, 11}},
         false,
         NULL},
        {"{'op':'sync'," TWO("['float32',[3]]", "['float32',[3]]") "}",
         {{12, 12}, {0, 0}},
         true,
         NULL},
        {"{'op':'frame','attrs':{'size':4,'step':4,'exact':1}}",
         {{19, 19}},
         true,
         "frame: length 19 is not a multiple of 4"},
        {"{'op':'frame','attrs':{'size':4,'step':4,'exact':1}}", {{19, 19}}, false, NULL},
        {"{'op':'frame','attrs':{'size':4,'step':4,'exact':1}}", {{20, 20}}, true, NULL},
        {"{'op':'table','attrs':{'length':[1,10,0,1]},'weights':[[5000,2]]}",
         {{1, 500}},
         false,
         "table: position 5001 is beyond the table's 5000 rows"},
        {"{'op':'table','attrs':{'length':[1,10,0,1]},'weights':[[5000,2]]}",
         {{499, 499}},
         true,
         NULL},
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
