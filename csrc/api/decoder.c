/* Decoders and their streams, as callers hold them. */
#include <string.h>

#include "api/object.h"
#include "decode/ctc.h"
#include "exec/transducer.h"

struct ds_decoder {
    ds_handle handle;
    ds_ctc *ctc;
    pthread_mutex_t lock; /* guards the list of streams */
    ds_decoding *streams;
};

struct ds_decoding {
    ds_handle handle;
    ds_decoder *decoder;
    ds_decoding *before, *after; /* in the decoder's list */
    ds_ctc_stream stream;
};

/* ---------------------------------------------------------------- decoders */
/* Makes what decodes, of a transducer where its models are given. */
static ds_status create(ds_ctc **ctc, const ds_decoder_options *o)
{
    DS_CHECK(!o->predictor == !o->joiner, DS_ARGUMENT,
             "ds_decoder_create: expected a predictor and a joiner, or neither");
    if (!o->predictor)
        return ds_ctc_create(ctc, o, NULL);
    ds_scorer scorer;
    DS_TRY(ds_handle_enter_model(o->predictor));
    ds_status status = o->joiner == o->predictor ? DS_OK : ds_handle_enter_model(o->joiner);
    if (status != DS_OK)
        return ds_handle_leave_parent(o->predictor, status);
    status = ds_transducer_scorer(&scorer, o->predictor->engine, o->joiner->engine);
    if (o->joiner != o->predictor)
        status = ds_handle_leave_parent(o->joiner, status);
    DS_TRY(ds_handle_leave_parent(o->predictor, status));
    return ds_ctc_create(ctc, o, &scorer);
}

ds_status ds_decoder_create(ds_decoder **decoder, const ds_decoder_options *caller)
{
    ds_decoder_options options = DS_DECODER_OPTIONS_INIT;
    DS_CHECK(decoder && caller, DS_ARGUMENT, "ds_decoder_create: decoder or options is NULL");
    DS_TRY(ds_take_struct(&options, sizeof options, caller, DS_DECODER_OPTIONS_1,
                          "ds_decoder_options"));
    DS_TRY(ds_check_allocator(options.allocator, "ds_decoder_options"));
    ds_ctc *ctc;
    void *memory;
    DS_TRY(create(&ctc, &options));
    DS_TRY_ELSE(ds_allocate(&ctc->allocator, &memory, sizeof(ds_decoder)), ds_ctc_destroy(ctc));
    ds_decoder *made = memory;
    *made = (ds_decoder){
        .handle.kind = DS_HANDLE_DECODER, .ctc = ctc, .lock = PTHREAD_MUTEX_INITIALIZER};
    ds_handle_add(&made->handle);
    *decoder = made;
    return DS_OK;
}

static void release_stream(ds_decoding *s)
{
    const ds_allocator allocator = s->stream.allocator;
    ds_ctc_close(&s->stream);
    ds_release(&allocator, s, sizeof *s);
}

ds_status ds_decoder_close(ds_decoder *decoder)
{
    DS_TRY(ds_handle_close_parent(DS_HANDLE_DECODER, decoder));
    const ds_allocator allocator = decoder->ctc->allocator;
    for (ds_decoding *s = decoder->streams, *after; s; s = after) {
        after = s->after;
        ds_handle_drop(&s->handle);
        release_stream(s);
    }
    ds_ctc_destroy(decoder->ctc);
    pthread_mutex_destroy(&decoder->lock);
    ds_release(&allocator, decoder, sizeof *decoder);
    return DS_OK;
}

/* Fills a text of n; fails where there is no such one. */
static ds_status give_text(ds_decoder *decoder, const ds_span *texts, size_t n, int32_t i,
                           const char **text, size_t *n_bytes)
{
    if (i < 0 || (size_t)i >= n)
        return ds_handle_leave_parent(
            decoder,
            ds_fail(DS_ARGUMENT, "decoder: expected a number below %zu, got %d", n, (int)i));
    *text = texts[i].text;
    *n_bytes = texts[i].n;
    return ds_handle_leave_parent(decoder, DS_OK);
}

ds_status ds_decoder_token(ds_decoder *decoder, int32_t token, const char **text, size_t *n_bytes)
{
    DS_CHECK(text && n_bytes, DS_ARGUMENT, "ds_decoder_token: text or n_bytes is NULL");
    DS_TRY(ds_handle_enter_parent(DS_HANDLE_DECODER, decoder));
    const ds_tokens *tokens = &decoder->ctc->language.tokens;
    return give_text(decoder, tokens->texts, (size_t)tokens->n, token, text, n_bytes);
}

ds_status ds_decoder_word(ds_decoder *decoder, int32_t word, const char **text, size_t *n_bytes)
{
    DS_CHECK(text && n_bytes, DS_ARGUMENT, "ds_decoder_word: text or n_bytes is NULL");
    DS_TRY(ds_handle_enter_parent(DS_HANDLE_DECODER, decoder));
    const ds_lexicon *lexicon = &decoder->ctc->language.lexicon;
    return give_text(decoder, lexicon->words, lexicon->n_words, word, text, n_bytes);
}

/* ---------------------------------------------------------------- streams */
static ds_status open_stream(ds_decoding **stream, ds_decoder *decoder)
{
    const ds_allocator *allocator = &decoder->ctc->allocator;
    ds_decoding *s;
    DS_TRY(ds_allocate_zeroed(allocator, (void **)&s, sizeof(ds_decoding)));
    s->handle = (ds_handle){.kind = DS_HANDLE_DECODING, .parent = &decoder->handle};
    s->decoder = decoder;
    DS_TRY_ELSE(ds_ctc_open(&s->stream, decoder->ctc, allocator),
                ds_release(allocator, s, sizeof *s));
    DS_LOCKED(&decoder->lock);
    s->after = decoder->streams;
    if (s->after)
        s->after->before = s;
    decoder->streams = s;
    ds_handle_add(&s->handle);
    *stream = s;
    return DS_OK;
}

ds_status ds_decoding_open(ds_decoding **stream, ds_decoder *decoder)
{
    DS_CHECK(stream, DS_ARGUMENT, "ds_decoding_open: stream is NULL");
    DS_TRY(ds_handle_enter_parent(DS_HANDLE_DECODER, decoder));
    return ds_handle_leave_parent(decoder, open_stream(stream, decoder));
}

ds_status ds_decoding_close(ds_decoding *stream)
{
    DS_TRY(ds_handle_enter_decoding(stream));
    ds_decoder *decoder = stream->decoder;
    pthread_mutex_lock(&decoder->lock);
    *(stream->before ? &stream->before->after : &decoder->streams) = stream->after;
    if (stream->after)
        stream->after->before = stream->before;
    pthread_mutex_unlock(&decoder->lock);
    ds_handle_drop(&stream->handle); /* leaves the stream, not yet the decoder */
    release_stream(stream);
    return ds_handle_leave_parent(decoder, DS_OK);
}

/* The streams' own parts, in memory of the decoder's. */
static ds_status step_entered(ds_decoder *decoder, ds_decoding *const *streams,
                              const ds_input *chunks, const uint32_t *flags, size_t n)
{
    void *inner;
    size_t n_bytes;
    DS_TRY(ds_array_bytes(&n_bytes, n, sizeof(ds_ctc_stream *)));
    DS_TRY(ds_allocate(&decoder->ctc->allocator, &inner, n_bytes));
    ds_ctc_stream **rows = inner;
    for (size_t i = 0; i < n; i++)
        rows[i] = &streams[i]->stream;
    const ds_status status = ds_ctc_step(decoder->ctc, rows, chunks, flags, n, NULL);
    ds_release(&decoder->ctc->allocator, inner, n_bytes);
    return status;
}

ds_status ds_decoder_step(ds_decoder *decoder, ds_decoding *const *streams, const ds_input *chunks,
                          const uint32_t *flags, size_t n_streams)
{
    DS_CHECK(n_streams == 0 || (streams && chunks), DS_ARGUMENT,
             "ds_decoder_step: streams or chunks is NULL");
    const void *const *addresses = (const void *const *)(const void *)streams;
    DS_TRY(ds_handle_enter_parent(DS_HANDLE_DECODER, decoder));
    ds_status status = ds_handle_enter_children(DS_HANDLE_DECODING, decoder, addresses, n_streams);
    if (status == DS_OK && n_streams > 0)
        status = ds_handle_leave_children(addresses, n_streams,
                                          step_entered(decoder, streams, chunks, flags, n_streams));
    return ds_handle_leave_parent(decoder, status);
}

ds_status ds_decoding_read(ds_decoding *stream, ds_hypothesis *hypothesis, size_t rank)
{
    DS_TRY(ds_check_struct(hypothesis, DS_HYPOTHESIS_1, "ds_hypothesis"));
    DS_TRY(ds_handle_enter_decoding(stream));
    ds_hypothesis filled = {.struct_size = sizeof filled};
    const ds_status status = ds_ctc_read(stream->decoder->ctc, &stream->stream, &filled, rank);
    if (status == DS_OK)
        ds_give_struct(hypothesis, &filled, sizeof filled);
    return ds_handle_leave_stream(stream, status);
}

/* ---------------------------------------------------------------- snapshots */
static ds_status enter_unended(const ds_decoding *stream)
{
    DS_TRY(ds_handle_enter_decoding(stream));
    if (!stream->stream.ended)
        return DS_OK;
    return ds_handle_leave_stream(
        stream, ds_fail(DS_STREAM_ID, "the stream has ended: there is nothing left to take a "
                                      "snapshot of"));
}

ds_status ds_decoding_snapshot_size(ds_decoding *stream, size_t *n_bytes)
{
    DS_CHECK(n_bytes, DS_ARGUMENT, "ds_decoding_snapshot_size: n_bytes is NULL");
    DS_TRY(enter_unended(stream));
    return ds_handle_leave_stream(
        stream, ds_ctc_snapshot(stream->decoder->ctc, &stream->stream, NULL, n_bytes));
}

ds_status ds_decoding_snapshot(ds_decoding *stream, void *bytes, size_t n_bytes)
{
    size_t n_needed;
    DS_CHECK(bytes, DS_ARGUMENT, "ds_decoding_snapshot: bytes is NULL");
    DS_TRY(enter_unended(stream));
    ds_status status = ds_ctc_snapshot(stream->decoder->ctc, &stream->stream, NULL, &n_needed);
    if (status == DS_OK && n_bytes != n_needed)
        status = ds_fail(DS_ARGUMENT, "ds_decoding_snapshot: expected room for %zu bytes, got %zu",
                         n_needed, n_bytes);
    if (status == DS_OK)
        status = ds_ctc_snapshot(stream->decoder->ctc, &stream->stream, bytes, &n_needed);
    return ds_handle_leave_stream(stream, status);
}

ds_status ds_decoding_restore(ds_decoding *stream, const void *bytes, size_t n_bytes)
{
    DS_CHECK(bytes, DS_ARGUMENT, "ds_decoding_restore: bytes is NULL");
    DS_TRY(ds_handle_enter_decoding(stream));
    stream->stream.reading.is_ranked = false;
    return ds_handle_leave_stream(
        stream, ds_ctc_restore(stream->decoder->ctc, &stream->stream, bytes, n_bytes));
}
