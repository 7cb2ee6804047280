/* A driver for the tests of operators: streams in random chunks, in batches of random others.
 *
 *     driven d = drive(op, &kernels->real[0], weights);
 *     op_stream s = open_op_stream(&d, x, lengths, false); // x: all frames of each input
 *     feed_op_whole(&d, &s);                               // or feed_op(&d, streams, n, false): in pieces
 *     ... s.y[o], s.n[o] ...
 *
 * It keeps per stream what counts and need say and nothing else: windows, targets, scratch, prepared weights and
 * carried blocks are exact allocations, so that the sanitizers see any other access. A window may begin earlier
 * than is needed, and the total may run ahead of what is known. */
#pragma once

#include "ops/registry.h"
#include "tools.h"

enum { MAX_ROWS = 5 };

typedef struct driven {
    const ds_op *op;
    const ds_real_kernels *k;
    const void *const *weights;
    void *prepared;
    size_t prepared_bytes;
} driven;

/* Of all calls: as in a step, each finds in it what the last one left. One for all operators, for so large a piece is
 * mapped afresh each time, which takes longer than most operators run. */
static _Alignas(64) char workspace_of_operators[DS_WORKSPACE_BYTES];

typedef struct op_stream {
    const char *x[DS_MAX_INPUTS];
    int64_t length[DS_MAX_INPUTS];
    int64_t lag[DS_MAX_INPUTS]; /* total runs ahead of known by this much */
    int64_t to[DS_MAX_INPUTS];  /* frames known after the next call */
    ds_pair in[DS_MAX_INPUTS], out[DS_MAX_OUTPUTS];
    void *carried;
    char *y[DS_MAX_OUTPUTS];
    int64_t n[DS_MAX_OUTPUTS]; /* frames of y, all told */
    bool ends, ended;          /* ends: with the next call */
} op_stream;

/* n_bytes of 0xff (a NaN in both types); NULL for none. */
static inline void *exact_room(size_t n_bytes)
{
    return n_bytes == 0 ? NULL : fresh_memory(n_bytes);
}

/* The same, aligned to 64 bytes and exact at its end. */
static inline void *aligned_room(size_t n_bytes)
{
    void *memory = NULL;
    CHECK(ds_allocate(NULL, &memory, n_bytes) == DS_OK);
    if (n_bytes > 0)
        memset(memory, 0xff, n_bytes);
    return memory;
}

static inline driven drive(const ds_op *op, const ds_real_kernels *k, const void *const *weights)
{
    driven d = {op, k, weights, NULL, ds_op_prepared_bytes(op, k)};
    memset(workspace_of_operators, 0xff, sizeof workspace_of_operators);
    d.prepared = aligned_room(d.prepared_bytes);
    if (d.prepared_bytes > 0)
        op->def->prepare(op, d.prepared, weights, k);
    return d;
}

static inline void drive_no_more(driven *d)
{
    ds_release(NULL, d->prepared, d->prepared_bytes);
}

static inline op_stream open_op_stream(const driven *d, char *const *x, const int64_t *lengths,
                                       bool lags)
{
    op_stream s = {.ended = false};
    ds_pair all[DS_MAX_INPUTS], out[DS_MAX_OUTPUTS];
    for (int i = 0; i < d->op->n_inputs; i++) {
        const bool alike = i > 0 && (d->op->def->flags & DS_OP_LOCKSTEP) != 0;
        s.x[i] = x[i];
        s.length[i] = lengths[i];
        s.lag[i] = alike ? s.lag[0] : lags ? random_below(2) * random_below(5) : 0;
        all[i] = (ds_pair){lengths[i], lengths[i]};
    }
    ds_op_counts(d->op, all, true, out);
    for (int o = 0; o < d->op->n_outputs; o++) {
        s.n[o] = out[o].known;
        s.y[o] = exact_room((size_t)out[o].known * ds_signature_bytes(&d->op->out[o]));
    }
    s.carried = exact_room(d->op->carried_bytes);
    if (s.carried != NULL)
        memset(s.carried, 0, d->op->carried_bytes);
    return s;
}

static inline void close_op_stream(const driven *d, op_stream *s)
{
    for (int o = 0; o < d->op->n_outputs; o++)
        free(s->y[o]);
    free(s->carried);
}

/* ---------------------------------------------------------------- one call */

/* The frames of input i that a row reads in a call, in memory of their own. */
static inline ds_window make_window(const driven *d, const op_stream *s, int i)
{
    int64_t first[DS_MAX_INPUTS];
    const size_t n_bytes = ds_signature_bytes(&d->op->in[i]);
    ds_op_need(d->op, s->out[0].known, first);
    int64_t at = first[i] < s->in[i].known ? first[i] : s->in[i].known;
    at = at > 0 ? at - random_below(2) : 0;
    void *frames = exact_room((size_t)(s->to[i] - at) * n_bytes);
    if (frames != NULL)
        memcpy(frames, s->x[i] + (size_t)at * n_bytes, (size_t)(s->to[i] - at) * n_bytes);
    return (ds_window){frames, at, s->to[i] - at};
}

/* Each row's inputs come to `to`, and perhaps to their ends; in_place: output 0 overwrites input 0. */
static inline void call_op(const driven *d, op_stream *const *rows, size_t n_rows, bool in_place)
{
    const ds_op *op = d->op;
    ds_window in[DS_MAX_INPUTS * MAX_ROWS] = {{0}};
    ds_target out[DS_MAX_OUTPUTS * MAX_ROWS];
    ds_counts count[DS_MAX_INPUTS * MAX_ROWS];
    ds_pair now[MAX_ROWS][DS_MAX_OUTPUTS];
    void *carried[MAX_ROWS];
    bool ended[MAX_ROWS], anything = false;
    ds_run run = {.n_rows = n_rows,
                  .in = in,
                  .out = out,
                  .count = count,
                  .ended = ended,
                  .carried = op->n_carried > 0 ? carried : NULL,
                  .prepared = d->prepared,
                  .weights = d->weights,
                  .k = d->k};
    for (size_t r = 0; r < n_rows; r++) {
        op_stream *s = rows[r];
        ds_pair pairs[DS_MAX_INPUTS];
        for (int i = 0; i < op->n_inputs; i++) {
            const int64_t known = s->to[i], ahead = known + s->lag[i];
            pairs[i] = (ds_pair){known, s->ends                ? known
                                        : ahead < s->length[i] ? ahead
                                                               : s->length[i]};
            count[(size_t)i * n_rows + r] = (ds_counts){s->in[i], pairs[i]};
            if (i < ds_op_n_values(op))
                in[(size_t)i * n_rows + r] = make_window(d, s, i);
        }
        ended[r] = s->ends;
        carried[r] = s->carried;
        ds_op_counts(op, pairs, s->ends, now[r]);
        CHECK(ds_op_check(op, pairs, s->ends) == DS_OK);
        CHECK(!op->same_counts || (now[r][0].known == pairs[0].known &&
                                   (now[r][0].total == pairs[0].total || now[r][0].total < 0)));
        for (int o = 0; o < op->n_outputs; o++) {
            ds_target *t = &out[(size_t)o * n_rows + r];
            *t = (ds_target){.m0 = s->out[o].known, .m1 = now[r][o].known};
            CHECK(t->m1 >= t->m0 && t->m1 <= now[r][o].known && t->m1 <= s->n[o]);
            CHECK(!s->ends || t->m1 == s->n[o]);
            t->data = exact_room((size_t)(t->m1 - t->m0) * ds_signature_bytes(&op->out[o]));
            anything |= t->m1 > t->m0 || (op->n_carried > 0 && pairs[0].known > s->in[0].known);
        }
        if (in_place && out[r].m1 > out[r].m0) {
            const size_t n_bytes = ds_signature_bytes(&op->in[0]);
            memcpy(out[r].data, s->x[0] + (size_t)out[r].m0 * n_bytes,
                   (size_t)(out[r].m1 - out[r].m0) * n_bytes);
            free((void *)(uintptr_t)in[r].data);
            in[r] = (ds_window){out[r].data, out[r].m0, out[r].m1 - out[r].m0};
        }
        run.frames_in += s->to[0] - s->in[0].known;
        run.frames_out += out[r].m1 - out[r].m0;
        memcpy(s->in, pairs, sizeof pairs[0] * (size_t)op->n_inputs);
    }
    if (anything) {
        const size_t n_bytes = ds_op_scratch_bytes(op, n_rows, run.frames_in, run.frames_out);
        run.scratch = aligned_room(n_bytes);
        void *const lent = ds_workspace_lend(workspace_of_operators);
        op->def->forward(op, &run);
        (void)ds_workspace_lend(lent);
        ds_release(NULL, run.scratch, n_bytes);
    }
    for (size_t r = 0; r < n_rows; r++) {
        op_stream *s = rows[r];
        for (int i = 0; i < op->n_inputs; i++) {
            const void *frames = in[(size_t)i * n_rows + r].data;
            free(frames == out[r].data ? NULL : (void *)(uintptr_t)frames);
        }
        for (int o = 0; o < op->n_outputs; o++) {
            const ds_target *t = &out[(size_t)o * n_rows + r];
            const size_t n_bytes = ds_signature_bytes(&op->out[o]);
            if (t->data != NULL) {
                memcpy(s->y[o] + (size_t)t->m0 * n_bytes, t->data,
                       (size_t)(t->m1 - t->m0) * n_bytes);
            }
            free(t->data);
            s->out[o] = now[r][o];
        }
        s->ended = s->ends;
    }
}

/* ---------------------------------------------------------------- whole streams */

/* All in one call. */
static inline void feed_op_whole(const driven *d, op_stream *s)
{
    memcpy(s->to, s->length, sizeof s->to);
    s->ends = true;
    call_op(d, &s, 1, false);
}

/* How far a stream goes in the next call: its inputs by random numbers of frames, those that are combined by one;
 * memories at once. */
static inline void aim(const driven *d, op_stream *s)
{
    const bool lockstep = (d->op->def->flags & DS_OP_LOCKSTEP) != 0;
    const int64_t most = random_below(3) == 0 ? 1 : random_below(8) == 0 ? 1000 : 9;
    const int64_t shared = random_in(0, most);
    s->ends = random_below(2) == 0;
    for (int i = 0; i < d->op->n_inputs; i++) {
        const bool memory = i > 0 && (d->op->def->flags & DS_OP_MEMORY) != 0;
        const int64_t more = memory ? s->length[i] : lockstep ? shared : random_in(0, most);
        const int64_t to = s->in[i].known + more;
        s->to[i] = to < s->length[i] ? to : s->length[i];
        s->ends = s->ends && s->to[i] == s->length[i];
    }
}

/* Feeds all streams to their ends: random chunks, each call with a random choice of them. */
static inline void feed_op(const driven *d, op_stream *streams, size_t n_streams, bool in_place)
{
    for (size_t n_ended = 0; n_ended < n_streams;) {
        op_stream *rows[MAX_ROWS];
        size_t n_rows = 0;
        for (size_t k = 0; k < n_streams; k++) {
            if (!streams[k].ended && random_below(4) > 0) {
                aim(d, &streams[k]);
                n_ended += streams[k].ends;
                rows[n_rows++] = &streams[k];
            }
        }
        call_op(d, rows, n_rows, in_place);
    }
}
