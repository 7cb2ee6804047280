/* The public API: steps of one stream and of ragged batches; what they refuse, and that a refused one
 * changes nothing. */
#include "api_driver.h"
#include "main.h"

/* ---------------------------------------------------------------- element types */

/* What one chunk of `n` frames of this type gives, the data at an odd address. */
static ds_status give(ds_model *model, const void *data, size_t n_bytes, size_t n, int32_t dtype,
                      taken *t)
{
    ds_output out[MAX_GRAPH_OUTPUTS];
    ds_stream *s = open_stream(model);
    char *odd = fresh_memory(n_bytes + 1);
    memcpy(odd + 1, data, n_bytes);
    const ds_input in = {odd + 1, n, dtype};
    const ds_status status = ds_stream_step(s, out, &in, DS_END);
    free(odd);
    if (status == DS_OK)
        take(t, model, out);
    CHECK(ds_stream_close(s) == DS_OK);
    return status;
}

TEST(types)
{
    enum { N = 50 };
    int16_t samples[N];
    float reals[N];
    double doubles[N];
    for (int i = 0; i < N; i++) {
        samples[i] = (int16_t)(i == 0 ? -32768 : i == 1 ? 32767 : random_in(-32768, 32767));
        reals[i] = (float)samples[i] / 32768.0f;
        doubles[i] = (double)reals[i] * (1.0 + 1e-12); /* is rounded */
    }
    ds_buffer file = samples_file();
    ds_model *model = load(&file, NULL);
    taken a = {{NULL}, {0}}, b = a, c = a, d = a;
    CHECK(give(model, reals, sizeof reals, N, 0, &a) == DS_OK);
    CHECK(give(model, reals, sizeof reals, N, DS_F32, &b) == DS_OK);
    CHECK(give(model, samples, sizeof samples, N, DS_I16, &c) == DS_OK);
    CHECK(give(model, doubles, sizeof doubles, N, DS_F64, &d) == DS_OK);
    CHECK(a.n[0] == (N - 4) / 2 + 1);
    CHECK(same_taken(model, &a, &b) && same_taken(model, &a, &c) && same_taken(model, &a, &d));
    CHECK(
        failed(give(model, doubles, sizeof doubles, N, DS_I64, &a), DS_DTYPE, "expected float32"));
    CHECK(failed(give(model, samples, sizeof samples, N, DS_BOOL, &a), DS_DTYPE,
                 "stream 0, input 0"));
    CHECK(failed(give(model, samples, sizeof samples, N, 6, &a), DS_DTYPE, "type 6"));
    CHECK(failed(give(model, samples, sizeof samples, N, -1, &a), DS_DTYPE, "type -1"));
    free_taken(&a);
    free_taken(&b);
    free_taken(&c);
    free_taken(&d);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);

    file = tagger_file(); /* frames of several numbers are no audio */
    model = load(&file, NULL);
    CHECK(
        failed(give(model, samples, sizeof samples, 3, DS_I16, &a), DS_DTYPE, "expected float32"));
    CHECK(give(model, doubles, 9 * sizeof *doubles, 3, DS_F64, &a) == DS_OK);
    free_taken(&a);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);

    file = bool_file(); /* whatever is not 0 is true */
    model = load(&file, NULL);
    const unsigned char yes[] = {0, 1, 2, 255};
    CHECK(give(model, yes, sizeof yes, 2, DS_BOOL, &a) == DS_OK);
    CHECK(a.n[0] == 2 && memcmp(a.data[0], "\1\0\0\0", 4) == 0);
    CHECK(failed(give(model, yes, sizeof yes, 2, DS_F64, &a), DS_DTYPE, "expected bool"));
    free_taken(&a);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);
}

/* ---------------------------------------------------------------- starts and ends */

TEST(flags)
{
    ds_buffer file = tagger_file();
    ds_model *model = load(&file, NULL);
    ds_stream *s = open_stream(model);
    ds_output out[3];
    float x[30];
    fill_random(x, 30);
    CHECK(failed(step_floats(s, out, x, 3, 0, 2, 4), DS_ARGUMENT, "flags are 4"));
    CHECK(failed(step_floats(s, out, x, 3, 0, 2, UINT32_MAX), DS_ARGUMENT,
                 "DS_START and DS_END only"));
    CHECK(stream_info_of(s).refused == 1 && stream_info_of(s).begun == 0);
    CHECK(step_floats(s, out, x, 3, 0, 0, 0) == DS_OK); /* no frames are a chunk too */
    CHECK(stream_info_of(s).refused == 0 && stream_info_of(s).begun == 1);
    CHECK(failed(step_floats(s, out, x, 3, 0, 2, DS_START), DS_STREAM_ID, "on its way"));
    CHECK(step_floats(s, out, x, 3, 0, 7, 0) == DS_OK);
    int64_t frames = 0;
    CHECK(ds_stream_frames(s, 0, &frames) == DS_OK && frames == 7);
    CHECK(failed(ds_stream_frames(s, 1, &frames), DS_ARGUMENT, "input 1: the model has 1"));
    CHECK(failed(ds_stream_frames(s, 0, NULL), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_stream_finish(s, NULL), DS_ARGUMENT, "NULL"));
    CHECK(ds_stream_finish(s, out) == DS_OK);
    CHECK(out[2].n_frames == 1 && out[2].start == 0 && out[1].n_frames == 2 && out[1].start == 5);
    CHECK(stream_info_of(s).ended == 1 && ds_stream_frames(s, 0, &frames) == DS_OK && frames == 0);
    CHECK(failed(step_floats(s, out, x, 3, 0, 1, 0), DS_STREAM_ID, "has ended"));
    CHECK(failed(ds_stream_finish(s, out), DS_STREAM_ID, "has ended"));
    CHECK(stream_info_of(s).refused == 1);
    CHECK(step_floats(s, out, x, 3, 0, 5, DS_START) == DS_OK && out[1].start == 0 &&
          out[1].n_frames == 3);
    CHECK(ds_stream_reset(s) == DS_OK && stream_info_of(s).begun == 0);
    CHECK(step_floats(s, out, x, 3, 0, 5, DS_START | DS_END) == DS_OK && out[1].n_frames == 5);
    CHECK(ds_stream_reset(s) == DS_OK && stream_info_of(s).ended == 0);
    CHECK(ds_stream_finish(s, out) == DS_OK); /* of nothing: nothing */
    CHECK(out[0].n_frames == 0 && out[1].n_frames == 0 && out[2].n_frames == 0);
    CHECK(out[0].data != NULL && out[1].data != NULL && out[2].data != NULL);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);
}

/* ---------------------------------------------------------------- calls that make no sense */

TEST(arguments)
{
    ds_buffer file = tagger_file();
    ds_model *model = load(&file, NULL), *other = load(&file, NULL);
    ds_stream *a = open_stream(model), *b = open_stream(model), *foreign = open_stream(other);
    ds_stream *closed = open_stream(model);
    CHECK(ds_stream_close(closed) == DS_OK);
    float x[30];
    fill_random(x, 30);
    ds_input in[3] = {{x, 4, 0}, {x, 4, 0}, {x, 4, 0}};
    ds_output out[9], was[9];
    memset(out, 0x55, sizeof out);
    memcpy(was, out, sizeof out);
    ds_stream *ab[] = {a, b}, *twice[] = {a, b, a}, *with_foreign[] = {a, foreign},
              *with_null[] = {a, NULL};
    ds_stream *with_closed[] = {a, b, closed}, *with_model[] = {a, (ds_stream *)(void *)model};
    CHECK(failed(ds_model_step(NULL, ab, out, in, NULL, 2), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_step(model, NULL, out, in, NULL, 2), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_step(model, ab, NULL, in, NULL, 2), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_step(model, ab, out, NULL, NULL, 2), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_model_step(model, twice, out, in, NULL, 3), DS_ARGUMENT,
                 "streams 0 and 2 are the same"));
    CHECK(failed(ds_model_step(model, with_foreign, out, in, NULL, 2), DS_ARGUMENT,
                 "stream 1 is of another"));
    CHECK(
        failed(ds_model_step(model, with_null, out, in, NULL, 2), DS_ARGUMENT, "stream 1 is NULL"));
    CHECK(failed(ds_model_step(model, with_closed, out, in, NULL, 3), DS_CLOSED,
                 "stream 2 was closed"));
    CHECK(failed(ds_model_step(model, with_model, out, in, NULL, 2), DS_CLOSED, "stream 1"));
    CHECK(failed(ds_stream_step(NULL, out, in, 0), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_stream_step(a, NULL, in, 0), DS_ARGUMENT, "NULL"));
    CHECK(failed(ds_stream_step(a, out, NULL, 0), DS_ARGUMENT, "NULL"));
    CHECK(stream_info_of(a).refused == 0 && stream_info_of(a).begun == 0);
    in[1].data = NULL;
    CHECK(failed(ds_model_step(model, ab, out, in, NULL, 2), DS_ARGUMENT,
                 "stream 1, input 0: 4 frames, but data"));
    CHECK(stream_info_of(a).refused == 0 && stream_info_of(b).refused == 1);
    in[1].data = x;
    const size_t absurd[] = {SIZE_MAX, (size_t)1 << 63, (size_t)INT64_MAX, (size_t)1 << 62,
                             (size_t)1 << 48};
    for (size_t i = 0; i < sizeof absurd / sizeof absurd[0]; i++) {
        in[1].n_frames = absurd[i];
        CHECK(failed(ds_model_step(model, ab, out, in, NULL, 2), DS_ARGUMENT, "sensible number"));
        CHECK(stream_info_of(a).refused == 0 && stream_info_of(b).refused == 1);
    }
    in[1].n_frames = ((size_t)1 << 48) - 1; /* could be, but nobody has so much memory */
    CHECK(failed(ds_model_step(model, ab, out, in, NULL, 2), DS_NO_MEMORY, "shorter"));
    CHECK(stream_info_of(a).refused == 0 && stream_info_of(b).refused == 1);
    CHECK(memcmp(out, was, sizeof out) == 0);
    in[1].n_frames = 0;
    in[1].data = NULL;
    CHECK(ds_model_step(model, ab, out, in, NULL, 2) == DS_OK && out[4].n_frames == 0);
    CHECK(ds_model_step(model, NULL, NULL, NULL, NULL, 0) == DS_OK); /* nothing to do */
    CHECK(ds_model_close(other) == DS_OK);
    CHECK(failed(ds_model_step(model, with_foreign, out, in, NULL, 2), DS_CLOSED, "stream 1"));
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);
}

/* ---------------------------------------------------------------- all or nothing */

/* A batch of three, of which the second is refused with this status: nobody has moved, the outputs of the
 * step before stay. Without it the other two go on. */
static void check_refusal(ds_model *model, const ds_input *good, const ds_input *bad,
                          uint32_t bad_flags, ds_status want)
{
    const size_t n_in = info_of(model).n_inputs, n_out = info_of(model).n_outputs;
    ds_stream *streams[3];
    ds_input in[3 * MAX_GRAPH_INPUTS];
    ds_output before[3 * MAX_GRAPH_OUTPUTS], out[3 * MAX_GRAPH_OUTPUTS], was[3 * MAX_GRAPH_OUTPUTS];
    uint32_t flags[] = {0, bad_flags, 0};
    for (size_t k = 0; k < 3; k++) {
        streams[k] = open_stream(model);
        memcpy(&in[k * n_in], good, n_in * sizeof *in);
    }
    CHECK(ds_model_step(model, streams, before, in, NULL, 3) == DS_OK);
    char *states[3], *views[3 * MAX_GRAPH_OUTPUTS];
    size_t n_states[3];
    for (size_t k = 0; k < 3; k++) {
        states[k] = snapshot_of(streams[k], &n_states[k]);
        for (size_t o = 0; o < n_out; o++) {
            const size_t n = before[k * n_out + o].n_frames * output_of(model, o).frame_bytes;
            memcpy(views[k * n_out + o] = fresh_memory(n), before[k * n_out + o].data, n);
        }
    }
    memcpy(&in[n_in], bad, n_in * sizeof *in);
    memset(out, 0x55, sizeof out);
    memcpy(was, out, sizeof out);
    CHECK(failed(ds_model_step(model, streams, out, in, flags, 3), want, ""));
    CHECK(memcmp(out, was, sizeof out) == 0);
    for (size_t k = 0; k < 3; k++) {
        CHECK(stream_info_of(streams[k]).refused == (k == 1) &&
              stream_info_of(streams[k]).ended == 0);
        CHECK(same_state(streams[k], states[k], n_states[k]));
        for (size_t o = 0; o < n_out; o++) {
            const size_t n = before[k * n_out + o].n_frames * output_of(model, o).frame_bytes;
            CHECK(memcmp(views[k * n_out + o], before[k * n_out + o].data, n) == 0);
            free(views[k * n_out + o]);
        }
        free(states[k]);
    }
    streams[1] = streams[2];
    memcpy(&in[n_in], &in[2 * n_in], n_in * sizeof *in);
    CHECK(ds_model_step(model, streams, out, in, NULL, 2) == DS_OK);
    CHECK(stream_info_of(streams[0]).refused == 0);
}

TEST(refusals)
{
    float x[60];
    fill_random(x, 60);
    ds_buffer file = pair_file(0); /* 2 frames of the first input go with 1 of the second */
    ds_model *model = load(&file, NULL);
    const ds_input together[] = {{x, 4, 0}, {x, 2, 0}}, apart[] = {{x, 4, 0}, {x, 4, 0}};
    const ds_input end_apart[] = {{x, 5, 0}, {x, 2, 0}};
    check_refusal(model, together, apart, 0, DS_MISMATCH);
    check_refusal(model, together, apart, DS_START, DS_STREAM_ID);
    ds_stream *s = open_stream(model);
    ds_output out[1];
    CHECK(ds_stream_step(s, out, end_apart, 0) == DS_OK &&
          out[0].n_frames == 2); /* less than one apart */
    int64_t frames = 0;
    CHECK(ds_stream_frames(s, 0, &frames) == DS_OK && frames == 5);
    CHECK(ds_stream_frames(s, 1, &frames) == DS_OK && frames == 2);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);

    file = pair_file(2);
    model = load(&file, NULL);
    s = open_stream(model);
    CHECK(ds_stream_step(s, out, apart, 0) == DS_OK &&
          out[0].n_frames == 2); /* the skew allows it */
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);

    file = index_file();
    model = load(&file, NULL);
    const int64_t in_table[] = {0, 3, 1}, beyond[] = {2, 4, 1}, below[] = {INT64_MIN, 0, 0};
    const ds_input good = {in_table, 3, 0}, high = {beyond, 3, DS_I64}, low = {below, 3, 0};
    check_refusal(model, &good, &high, 0, DS_INDEX);
    check_refusal(model, &good, &low, DS_END, DS_INDEX);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);

    file = waiting_file();
    model = load(&file, NULL);
    CHECK(info_of(model).delay == -1 && info_of(model).state_bytes_per_frame > 0);
    const ds_input few = {x, 5, 0}, many = {x, 6, 0};
    check_refusal(model, &few, &many, 0, DS_LIMIT);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);

    file = fours_file();
    model = load(&file, NULL);
    const ds_input four = {x, 4, 0}, three = {x, 3, 0};
    check_refusal(model, &four, &three, DS_END, DS_SHAPE);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);
}

/* Outputs are the stream's own: steps of others leave them alone. */
TEST(views)
{
    ds_buffer file = tagger_file();
    ds_model *model = load(&file, NULL);
    ds_stream *a = open_stream(model), *b = open_stream(model);
    float x[300];
    fill_random(x, 300);
    ds_output first[3], other[3];
    CHECK(step_floats(a, first, x, 3, 0, 40, 0) == DS_OK);
    const size_t n_bytes = first[1].n_frames * 12;
    char *was = fresh_memory(n_bytes);
    memcpy(was, first[1].data, n_bytes);
    for (size_t at = 0; at < 100; at += 20) {
        CHECK(step_floats(b, other, x, 3, at, 20, 0) == DS_OK);
        CHECK(other[1].data != first[1].data && memcmp(was, first[1].data, n_bytes) == 0);
    }
    CHECK(ds_stream_reset(a) == DS_OK && memcmp(was, first[1].data, n_bytes) == 0);
    CHECK(ds_stream_close(b) == DS_OK && memcmp(was, first[1].data, n_bytes) == 0);
    free(was);
    CHECK(ds_model_close(model) == DS_OK);
    ds_buffer_free(&file);
}
