/* What callers see of a stream: its hypotheses, the best first. */
#include <string.h>

#include "decode/ctc.h"

void ds_ctc_reading_free(ds_ctc_stream *stream)
{
    ds_ctc_reading *r = &stream->reading;
    ds_release(&stream->allocator, r->order, r->room_order * sizeof *r->order);
    ds_release(&stream->allocator, r->scores, r->room_scores * sizeof *r->scores);
    ds_release(&stream->allocator, r->tokens, r->room_tokens * sizeof *r->tokens);
    *r = (ds_ctc_reading){0};
}

ds_status ds_ctc_make_readable(ds_ctc_stream *stream, const ds_ctc_state *state)
{
    ds_ctc_reading *r = &stream->reading;
    const size_t n = state->n_entries;
    size_t n_pending = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t own = (size_t)ds_ctc_pending(state, &state->entries[i]);
        n_pending = own > n_pending ? own : n_pending;
    }
    DS_TRY(DS_RESERVE(&stream->allocator, r, order, 0, n));
    DS_TRY(DS_RESERVE(&stream->allocator, r, scores, 0, n));
    return DS_RESERVE(&stream->allocator, r, tokens, 0, state->n_past + n_pending);
}

ds_status ds_ctc_read(const ds_ctc *ctc, ds_ctc_stream *stream, ds_hypothesis *hypothesis,
                      size_t rank)
{
    const ds_ctc_state *s = &stream->now;
    ds_ctc_reading *reading = &stream->reading;
    DS_CHECK(rank < s->n_entries, DS_ARGUMENT, "decoder: expected a rank below %zu, got %zu",
             s->n_entries, rank);
    if (!reading->is_ranked) {
        DS_TRY(ds_ctc_make_readable(stream, s));
        DS_TRY(ds_ctc_rank(ctc, s, stream->ended, reading->order, reading->scores));
        reading->is_ranked = true;
    }
    const ds_entry *entry = &s->entries[reading->order[rank]];
    const size_t n_pending = (size_t)ds_ctc_pending(s, entry), n = s->n_past + n_pending;
    if (s->n_past)
        memcpy(reading->tokens, s->past, s->n_past * sizeof *s->past);
    if (n_pending)
        ds_ctc_tokens(s, entry, reading->tokens + s->n_past);
    const bool all_final = stream->ended && rank == 0;
    for (size_t i = s->n_past; i < n; i++)
        reading->tokens[i].is_final = all_final;
    const size_t struct_size = hypothesis->struct_size;
    *hypothesis = (ds_hypothesis){struct_size, reading->tokens,
                                  n,           all_final ? n : s->n_past,
                                  s->n_left,   reading->scores[reading->order[rank]],
                                  s->frame,    s->n_endpoints,
                                  s->n_entries};
    return DS_OK;
}
