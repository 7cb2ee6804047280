/*
 * Models for tests of the public C API: graphs written as model files into memory (tests/c/model_cases.h),
 * and what streams of them give, laid end to end. Include it in one file per program.
 *
 *     ds_buffer file = tagger_file();
 *     ds_model *model = load(&file, NULL);
 *     ... ds_model_close(model); ds_buffer_free(&file);
 */
#pragma once

#include "model_cases.h"

/* ---------------------------------------------------------------- files */

/* The file of a graph whose inputs may be `skew` frames apart. */
static inline ds_buffer write_graph(const graph_case *c, int64_t skew)
{
    CHECK(c->status == DS_OK);
    ds_interface *interface = interface_for(c->graph);
    interface->skew = skew;
    const ds_buffer file = file_of(c->graph, interface);
    ds_interface_free(interface);
    return file;
}

/* The same; takes the graph. */
static inline ds_buffer take_graph(graph_case *c, int64_t skew)
{
    const ds_buffer file = write_graph(c, skew);
    ds_graph_destroy(c->graph);
    return file;
}

/* One input of 3 floats at rate 1. Outputs: an LSTM behind a strided convolution, 3 floats at rate 1/2; a
 * residual that needs two frames of the future, 3 floats at rate 1; the mean of all frames at the end. */
static inline graph_case tagger_case(void)
{
    random_state = 21;
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int y = add_combined(&c, "add", x, add_padded_conv(&c, x, 3, 5, 1, 1, 2, 2, "zeros"));
    add_output(&c, add_lstm(&c, add_conv(&c, y, 4, 3, 2), 3, false));
    add_output(&c, y);
    add_output(&c, add_reduction(&c, y, "mean"));
    return c;
}

static inline ds_buffer tagger_file(void)
{
    graph_case c = tagger_case();
    return take_graph(&c, 0);
}

/* Adds an input of any signature. */
static inline int add_port(graph_case *c, ds_dtype dtype, int rank, int64_t width)
{
    int edge = -1;
    const ds_signature s = {.dtype = dtype, .rank = rank, .shape = {width}, .rate = {1, 1}};
    if (c->status == DS_OK)
        c->status = ds_graph_input(c->graph, &edge, &s);
    return edge;
}

/* One number per frame: windows of 4, every 2, through a product. */
static inline ds_buffer samples_file(void)
{
    random_state = 5;
    graph_case c = new_case();
    const int x = add_port(&c, DS_F32, 0, 0);
    add_output(&c, add_linear(&c, add_shift(&c, "frame", x, "size", 4, "step", 2), 2));
    return take_graph(&c, 0);
}

/* Two inputs, of 2 floats at rate 2 and of 3 floats at rate 1, meet at rate 1. */
static inline ds_buffer pair_file(int64_t skew)
{
    random_state = 6;
    graph_case c = new_case();
    const int x = add_input(&c, 2, 2, 1), y = add_input(&c, 3, 1, 1);
    add_output(&c, add_combined(&c, "add", add_conv(&c, x, 3, 2, 2), y));
    return take_graph(&c, skew);
}

/* Numbers of rows of a table of 4, 3 floats each. */
static inline ds_buffer index_file(void)
{
    random_state = 7;
    graph_case c = new_case();
    const int x = add_port(&c, DS_I64, 0, 0);
    const ds_signature weight = {.dtype = DS_F32, .rank = 2, .shape = {4, 3}, .rate = {0, 1}};
    add_output(&c, add_node(&c, ds_op_find("embedding"), NULL, 0, &x, 1, &weight, 1));
    return take_graph(&c, 0);
}

/* Waits for the end of streams of up to 10 frames. */
static inline ds_buffer waiting_file(void)
{
    random_state = 8;
    graph_case c = new_case();
    const int x = add_shift(&c, "limit", add_input(&c, 2, 1, 1), "frames", 10, NULL, 0);
    add_output(&c, add_padded_conv(&c, x, 2, 3, 1, 1, 1, 1, "circular"));
    return take_graph(&c, 0);
}

/* Takes streams whose lengths are multiples of 4. */
static inline ds_buffer fours_file(void)
{
    graph_case c = new_case();
    const ds_attr attrs[] = {int_attr("size", 4), int_attr("step", 4), int_attr("exact", 1)};
    const int x = add_input(&c, 2, 1, 1);
    add_output(&c, add_node(&c, ds_op_find("frame"), attrs, 3, &x, 1, NULL, 0));
    return take_graph(&c, 0);
}

static inline ds_buffer bool_file(void)
{
    graph_case c = new_case();
    add_output(&c, add_unary(&c, "logical_not", add_port(&c, DS_BOOL, 1, 2)));
    return take_graph(&c, 0);
}

/* ---------------------------------------------------------------- models */

static inline ds_model *load(const ds_buffer *file, const ds_model_options *options)
{
    ds_model *model = NULL;
    CHECK_OK(ds_model_load_memory(&model, file->bytes, file->n_bytes, options));
    return model;
}

static inline ds_model *load_with(const ds_buffer *file, const char *backend, uint32_t threads)
{
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.backend = backend;
    options.threads = threads;
    return load(file, &options);
}

/* One whose memory `fault` counts. */
static inline ds_model *load_counted(const ds_buffer *file)
{
    ds_model_options options = DS_MODEL_OPTIONS_INIT;
    options.allocator = &hooks;
    return load(file, &options);
}

static inline ds_stream *open_stream(ds_model *model)
{
    ds_stream *stream = NULL;
    CHECK(ds_stream_open(&stream, model) == DS_OK);
    return stream;
}

/* Whether a struct that the library filled says this much. */
#define QUERY(type, function, ...)            \
    type info = {.struct_size = sizeof info}; \
    CHECK(function(__VA_ARGS__) == DS_OK)

static inline ds_model_info info_of(ds_model *model)
{
    QUERY(ds_model_info, ds_model_query, model, &info);
    return info;
}

static inline ds_memory_info memory_of(ds_model *model)
{
    QUERY(ds_memory_info, ds_model_memory, model, &info);
    return info;
}

static inline ds_stream_info stream_info_of(ds_stream *stream)
{
    QUERY(ds_stream_info, ds_stream_query, stream, &info);
    return info;
}

static inline ds_port_info output_of(ds_model *model, size_t index)
{
    QUERY(ds_port_info, ds_model_output, model, index, &info);
    return info;
}

/* ---------------------------------------------------------------- what streams give */

/* All frames of each output so far. */
typedef struct taken {
    char *data[MAX_GRAPH_OUTPUTS];
    size_t n[MAX_GRAPH_OUTPUTS]; /* frames */
} taken;

/* Takes what one step gave, which begins where the last one ended. */
static inline void take(taken *t, ds_model *model, const ds_output *outputs)
{
    const size_t n_outputs = info_of(model).n_outputs;
    for (size_t o = 0; o < n_outputs; o++) {
        const size_t bytes = output_of(model, o).frame_bytes, n = outputs[o].n_frames;
        CHECK(outputs[o].data != NULL && (uintptr_t)outputs[o].data % DS_ALIGNMENT == 0);
        CHECK(outputs[o].start == (int64_t)t->n[o]);
        char *more = realloc(t->data[o], (t->n[o] + n) * bytes + 1);
        CHECK(more != NULL);
        memcpy(more + t->n[o] * bytes, outputs[o].data, n * bytes);
        t->data[o] = more;
        t->n[o] += n;
    }
}

static inline bool same_taken(ds_model *model, const taken *a, const taken *b)
{
    const size_t n_outputs = info_of(model).n_outputs;
    for (size_t o = 0; o < n_outputs; o++) {
        if (a->n[o] != b->n[o] ||
            memcmp(a->data[o], b->data[o], a->n[o] * output_of(model, o).frame_bytes) != 0) {
            return false;
        }
    }
    return true;
}

static inline void free_taken(taken *t)
{
    for (size_t o = 0; o < MAX_GRAPH_OUTPUTS; o++)
        free(t->data[o]);
    *t = (taken){{NULL}, {0}};
}

/* The next `n` of the frames of a model with one input of floats; the caller's memory is its own size and
 * gone afterwards. */
static inline ds_status step_floats(ds_stream *s, ds_output *outputs, const float *x, size_t width,
                                    size_t at, size_t n, uint32_t flags)
{
    float *own = fresh_memory(n * width * sizeof *own);
    memcpy(own, x + at * width, n * width * sizeof *own);
    const ds_input in = {own, n, 0};
    const ds_status status = ds_stream_step(s, outputs, &in, flags);
    free(own);
    return status;
}

/* Frames from `at` to `to` in random chunks, the last with `flags`. */
static inline void feed(ds_model *model, ds_stream *s, taken *t, const float *x, size_t width,
                        size_t at, size_t to, uint32_t flags)
{
    ds_output outputs[MAX_GRAPH_OUTPUTS];
    for (bool last = false; !last;) {
        size_t n = random_below(3) == 0 ? (size_t)random_below(2) : (size_t)random_below(9);
        n = n < to - at ? n : to - at;
        last = at + n == to && random_below(2) == 0;
        CHECK(step_floats(s, outputs, x, width, at, n, last ? flags : 0) == DS_OK);
        take(t, model, outputs);
        at += n;
    }
}

/* The whole in one chunk, from a stream of its own. */
static inline taken whole_of(ds_model *model, const float *x, size_t width, size_t n)
{
    taken t = {{NULL}, {0}};
    ds_output outputs[MAX_GRAPH_OUTPUTS];
    ds_stream *s = open_stream(model);
    CHECK(step_floats(s, outputs, x, width, 0, n, DS_START | DS_END) == DS_OK);
    take(&t, model, outputs);
    CHECK(ds_stream_close(s) == DS_OK);
    return t;
}

/* The stream's snapshot; free() it. */
static inline char *snapshot_of(ds_stream *s, size_t *n_bytes)
{
    CHECK(ds_stream_snapshot_size(s, n_bytes) == DS_OK);
    char *bytes = fresh_memory(*n_bytes);
    CHECK(ds_stream_snapshot(s, bytes, *n_bytes) == DS_OK);
    return bytes;
}

/* Whether the stream remembers what it did when the snapshot was taken. */
static inline bool same_state(ds_stream *s, const char *was, size_t n_was)
{
    size_t n = 0;
    char *now = snapshot_of(s, &n);
    const bool same = n == n_was && memcmp(now, was, n) == 0;
    free(now);
    return same;
}
