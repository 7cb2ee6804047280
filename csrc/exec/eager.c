/* exec/eager.c: puts together the windows of one operator's rows from kept frames and new ones, runs it, and
 * takes from them what is kept. */
#include "exec/eager.h"

#include <string.h>

#include "base/alloc.h"
#include "cpu/float_env.h"

int64_t ds_eager_kept_from(const ds_op *op, int input, ds_pair in, ds_pair out)
{
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(op, out.known, first);
    return first[input] < in.known ? first[input] : in.known;
}

ds_status ds_eager_state_bytes(const ds_op *op, const ds_pair *in, ds_pair out, size_t *n_bytes)
{
    *n_bytes = op->carried_bytes;
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(op, out.known, first);
    for (int i = 0; i < ds_op_n_values(op); i++) {
        size_t kept = first[i] < in[i].known ? (size_t)(in[i].known - first[i]) : 0, bytes;
        DS_CHECK(!__builtin_mul_overflow(kept, ds_signature_bytes(&op->in[i]), &bytes) &&
                     !__builtin_add_overflow(*n_bytes, bytes, n_bytes),
                 DS_NO_MEMORY, "%s: %zu kept frames do not fit into memory", op->def->name, kept);
    }
    return DS_OK;
}

/* Frames that are new in a row. */
static int64_t fresh_frames(const ds_counts *c)
{
    return c->now.known - c->before.known;
}

static int64_t sum_fresh(const ds_counts *rows, size_t n_rows)
{
    int64_t sum = 0;
    for (size_t r = 0; r < n_rows; r++)
        sum += fresh_frames(&rows[r]);
    return sum;
}

/* One call; arrays over inputs or outputs and rows as a run has them. */
typedef struct work {
    const ds_eager *call;
    ds_arena *arena;
    ds_window *in;
    ds_target *out;
    ds_counts *count;
    void **carried;
    const char **states; /* what is unread of the states before */
    bool any_kept;
    ds_run run;
    struct {
        ds_window in[DS_MAX_INPUTS];
        ds_target out[DS_MAX_OUTPUTS];
        ds_counts count[DS_MAX_INPUTS];
    } flat; /* where all rows are run as one */
} work;

/* The windows of value input i: the new frames where they are if no row has kept any, else [kept | new]. */
static ds_status load_windows(work *w, int i)
{
    const ds_eager *c = w->call;
    const size_t frame_bytes = ds_signature_bytes(&c->op->in[i]);
    const char *values = c->values[i];
    ds_window *in = w->in + (size_t)i * c->n_rows;
    int64_t n_all = 0, n_kept = 0;
    for (size_t r = 0; r < c->n_rows; r++) {
        const ds_pair before = c->in[i][r].before;
        if (c->states[r])
            in[r].at = ds_eager_kept_from(c->op, i, before, c->out[0][r].before);
        in[r].n = c->in[i][r].now.known - in[r].at;
        n_all += in[r].n;
        n_kept += before.known - in[r].at;
    }
    char *data = (char *)(uintptr_t)values;
    if (n_kept > 0)
        DS_TRY(ds_arena_push_array(w->arena, (void **)&data, (size_t)n_all, frame_bytes));
    for (size_t r = 0; r < c->n_rows; r++) {
        const size_t fresh = (size_t)fresh_frames(&c->in[i][r]) * frame_bytes;
        const size_t all = (size_t)in[r].n * frame_bytes, kept = all - fresh;
        in[r].data = data;
        if (kept) {
            memcpy(data, w->states[r], kept);
            w->states[r] += kept;
        }
        if (n_kept > 0 && fresh) {
            memcpy(data + kept, values, fresh);
            values += fresh;
        }
        data = all ? data + all : data;
    }
    w->any_kept |= n_kept > 0;
    return DS_OK;
}

static ds_status load_carried(work *w)
{
    const ds_eager *c = w->call;
    const size_t n_bytes = c->op->carried_bytes;
    for (size_t r = 0; r < c->n_rows; r++) {
        DS_TRY(ds_arena_push_zeroed(w->arena, &w->carried[r], n_bytes, 1));
        if (n_bytes && c->states[r])
            memcpy(w->carried[r], w->states[r], n_bytes);
    }
    return DS_OK;
}

static ds_status load_rows(work *w)
{
    const ds_eager *c = w->call;
    const ds_op *op = c->op;
    const size_t n = c->n_rows;
    DS_PUSH(w->arena, w->in, n * (size_t)op->n_inputs);
    DS_PUSH(w->arena, w->count, n * (size_t)op->n_inputs);
    DS_PUSH(w->arena, w->out, n * (size_t)op->n_outputs);
    DS_PUSH(w->arena, w->carried, n);
    DS_PUSH(w->arena, w->states, n);
    for (size_t r = 0; r < n; r++)
        w->states[r] = c->states[r];
    for (int i = 0; i < op->n_inputs; i++) {
        for (size_t r = 0; r < n; r++) {
            const ds_counts *counts = &c->in[i][r];
            w->count[(size_t)i * n + r] = *counts;
            w->in[(size_t)i * n + r] =
                (ds_window){NULL, counts->before.known, fresh_frames(counts)};
        }
        if (i < ds_op_n_values(op))
            DS_TRY(load_windows(w, i));
    }
    for (int o = 0; o < op->n_outputs; o++) {
        char *data = c->outputs[o];
        for (size_t r = 0; r < n; r++) {
            const ds_counts *counts = &c->out[o][r];
            const size_t n_bytes = (size_t)fresh_frames(counts) * ds_signature_bytes(&op->out[o]);
            w->out[(size_t)o * n + r] = (ds_target){data, counts->before.known, counts->now.known};
            data = n_bytes ? data + n_bytes : data;
        }
    }
    return load_carried(w);
}

static void store_states(const work *w)
{
    const ds_eager *c = w->call;
    const ds_op *op = c->op;
    for (size_t r = 0; r < c->n_rows; r++) {
        char *to = c->new_states[r];
        if (!to)
            continue;
        for (int i = 0; i < ds_op_n_values(op); i++) {
            const ds_window *in = &w->in[(size_t)i * c->n_rows + r];
            const size_t frame_bytes = ds_signature_bytes(&op->in[i]);
            const ds_pair now = c->in[i][r].now;
            const int64_t from = ds_eager_kept_from(op, i, now, c->out[0][r].now);
            const size_t n_bytes = (size_t)(now.known - from) * frame_bytes;
            if (n_bytes)
                memcpy(to, ds_at(in, from, frame_bytes), n_bytes);
            to += n_bytes;
        }
        if (op->n_carried)
            memcpy(to, w->carried[r], op->carried_bytes);
    }
}

/* Looks at the new values of all rows; the first fault is reported. */
static ds_status check_values(const ds_eager *call)
{
    if (!call->op->def->check_values)
        return DS_OK;
    const char *values = call->values[0];
    ds_first_fault first = {DS_OK, ""};
    for (size_t r = 0; r < call->n_rows; r++) {
        const int64_t n = fresh_frames(&call->in[0][r]);
        call->bad[r] = false;
        ds_first_fault_note(&first, ds_op_check_values(call->op, values, n), &call->bad[r]);
        values = n ? values + (size_t)n * ds_signature_bytes(&call->op->in[0]) : values;
    }
    return ds_first_fault_end(&first);
}

/* The weights as the kernels want them: the caller's, or made for this call. */
static ds_status prepare(work *w)
{
    const ds_eager *c = w->call;
    const size_t n_bytes = c->prepared ? 0 : ds_op_prepared_bytes(c->op, w->run.k);
    w->run.prepared = c->prepared;
    if (!n_bytes)
        return DS_OK;
    void *made;
    DS_TRY(ds_arena_push(w->arena, &made, n_bytes));
    c->op->def->prepare(c->op, made, c->weights, w->run.k);
    w->run.prepared = made;
    return DS_OK;
}

/* All rows as one, from frame 0 on. */
static void flatten(work *w)
{
    static const bool not_ended = false;
    const ds_eager *c = w->call;
    for (int i = 0; i < c->op->n_inputs; i++) {
        const int64_t n = sum_fresh(c->in[i], c->n_rows);
        w->flat.in[i] = (ds_window){c->values[i], 0, n};
        w->flat.count[i] = (ds_counts){{0, 0}, {n, n}};
    }
    for (int o = 0; o < c->op->n_outputs; o++)
        w->flat.out[o] = (ds_target){c->outputs[o], 0, sum_fresh(c->out[o], c->n_rows)};
    w->run.n_rows = 1;
    w->run.in = w->flat.in;
    w->run.out = w->flat.out;
    w->run.count = w->flat.count;
    w->run.ended = &not_ended;
}

/* Whether there are frames to give, or, where something is carried, to take. */
static bool has_work(const ds_eager *c)
{
    bool any = false;
    for (int o = 0; o < c->op->n_outputs; o++)
        any |= sum_fresh(c->out[o], c->n_rows) > 0;
    for (int i = 0; i < c->op->n_inputs && c->op->n_carried > 0; i++)
        any |= sum_fresh(c->in[i], c->n_rows) > 0;
    return any;
}

static ds_status forward(work *w)
{
    const ds_eager *c = w->call;
    w->run = (ds_run){.n_rows = c->n_rows,
                      .in = w->in,
                      .out = w->out,
                      .count = w->count,
                      .ended = c->ended,
                      .carried = w->carried,
                      .weights = c->weights,
                      .k = &c->kernels->real[ds_op_real(c->op) == DS_F64],
                      .frames_in = sum_fresh(c->in[0], c->n_rows),
                      .frames_out = sum_fresh(c->out[0], c->n_rows)};
    if (ds_op_framewise(c->op) && !w->any_kept)
        flatten(w);
    const size_t n_bytes =
        ds_op_scratch_bytes(c->op, c->n_rows, w->run.frames_in, w->run.frames_out);
    DS_TRY(ds_arena_push(w->arena, &w->run.scratch, n_bytes));
    DS_TRY(prepare(w));
    c->op->def->forward(c->op, &w->run);
    return DS_OK;
}

static ds_status run(const ds_eager *eager, ds_arena *arena)
{
    work w = {.call = eager, .arena = arena};
    DS_TRY(check_values(eager));
    ds_arena_reset(arena);
    DS_TRY(load_rows(&w));
    if (has_work(eager))
        DS_TRY(forward(&w));
    store_states(&w);
    return DS_OK;
}

ds_status ds_eager_run(const ds_eager *eager, ds_arena *arena)
{
    ds_float_env callers;
    ds_float_env_enter(&callers);
    const ds_status status = run(eager, arena);
    ds_float_env_leave(&callers);
    return status;
}
