/* What callers see of a stream: its hypotheses, the best first. */
#include <string.h>

#include "decode/ctc.h"

void ds_ctc_reading_free(ds_ctc_reading *reading, const ds_allocator *allocator)
{
    ds_release(allocator, reading->order, reading->room_order * sizeof *reading->order);
    ds_release(allocator, reading->scores, reading->room_scores * sizeof *reading->scores);
    ds_release(allocator, reading->tokens, reading->room_tokens * sizeof *reading->tokens);
    *reading = (ds_ctc_reading){0};
}

static ds_status rank_all(const ds_ctc *ctc, const ds_ctc_stream *stream, ds_ctc_reading *r)
{
    const ds_ctc_state *s = &stream->now;
    while (r->room_order < s->n_entries)
        DS_TRY(ds_ctc_grow(&stream->allocator, (void **)&r->order, r->room_order, &r->room_order,
                           sizeof *r->order));
    while (r->room_scores < s->n_entries)
        DS_TRY(ds_ctc_grow(&stream->allocator, (void **)&r->scores, r->room_scores, &r->room_scores,
                           sizeof *r->scores));
    ds_ctc_rank(ctc, s, stream->ended, r->order, r->scores);
    r->is_ranked = true;
    return DS_OK;
}

ds_status ds_ctc_read(const ds_ctc *ctc, const ds_ctc_stream *stream, ds_ctc_reading *reading,
                      ds_hypothesis *hypothesis, size_t rank)
{
    const ds_ctc_state *s = &stream->now;
    DS_CHECK(rank < s->n_entries, DS_ARGUMENT, "decoder: expected a rank below %zu, got %zu",
             s->n_entries, rank);
    if (!reading->is_ranked)
        DS_TRY(rank_all(ctc, stream, reading));
    const ds_entry *entry = &s->entries[reading->order[rank]];
    const size_t n_pending = (size_t)ds_ctc_pending(s, entry), n = s->n_past + n_pending;
    while (reading->room_tokens < n)
        DS_TRY(ds_ctc_grow(&stream->allocator, (void **)&reading->tokens, reading->room_tokens,
                           &reading->room_tokens, sizeof *reading->tokens));
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
