/* exec/back.c: windows of slopes for one operator's rows, its backward, and what of them goes where.
 *
 * Where nothing is kept, or slopes of kept frames are dropped, a row's window of slopes is its part of the caller's
 * array: nothing is copied. Else it is [kept | new], to which first the slopes are added that later calls left. */
#include "exec/back.h"

#include <string.h>

#include "cpu/float_env.h"
#include "exec/work.h"

typedef struct turned {
    ds_work work;
    const ds_eager_back *back;
    const void **dy;
    ds_slope *dx;
    void **dcarried, *workspace;
    ds_back b;
    bool whole[DS_MAX_INPUTS]; /* whether windows have room for what was kept */
} turned;

static void add(const turned *t, ds_dtype dtype, void *to, const void *slopes, size_t n)
{
    if (n > 0)
        t->work.call->kernels->real[dtype == DS_F64].binary(DS_BINARY_ADD, to, to, slopes, n, 1, 1);
}

/* First frame of input i that row r kept for the next call. */
static int64_t kept_now(const turned *t, int i, size_t r)
{
    const ds_eager *c = t->work.call;
    return ds_eager_kept_from(c->op, i, c->in[i][r].now, c->out[0][r].now);
}

/* Windows of slopes of input i. after: per row what is unread of the slopes of its state after. */
static ds_status load_slopes(turned *t, int i, const char **after, bool full)
{
    const ds_eager *c = t->work.call;
    const ds_signature *s = &c->op->in[i];
    const size_t frame = ds_signature_bytes(s), n_rows = c->n_rows;
    const ds_window *in = t->work.in + (size_t)i * n_rows;
    ds_slope *dx = t->dx + (size_t)i * n_rows;
    int64_t n_kept = 0;
    bool later = false;
    for (size_t r = 0; r < n_rows; r++) {
        n_kept += c->in[i][r].before.known - in[r].at;
        later |= after[r] && kept_now(t, i, r) < c->in[i][r].now.known;
    }
    /* What sees the whole stream at once needs not know from where on its slopes are wanted. */
    const bool kept = (full || c->op->whole) && n_kept > 0;
    t->whole[i] = ds_is_real(s->dtype) && (kept || (later && !t->back->inputs[i]));
    char *data = t->back->inputs[i];
    if (t->whole[i])
        DS_TRY(ds_arena_push_zeroed(t->work.arena, (void **)&data,
                                    (size_t)(n_kept + t->work.n_in[i]), frame));
    for (size_t r = 0; r < n_rows; r++) {
        const int64_t end = c->in[i][r].now.known, from = kept_now(t, i, r);
        const int64_t at = t->whole[i] ? in[r].at : c->in[i][r].before.known;
        dx[r] = (ds_slope){ds_is_real(s->dtype) ? data : NULL, at, end - at};
        data = data ? data + (size_t)(end - at) * frame : NULL;
        if (after[r]) {
            void *const to = from < end ? ds_slope_at(&dx[r], from, frame) : NULL;
            if (to)
                add(t, s->dtype, to, after[r], (size_t)((end - from) * ds_signature_elements(s)));
            after[r] += (size_t)(end - from) * frame;
        }
    }
    return DS_OK;
}

static ds_status load(turned *t)
{
    ds_work *w = &t->work;
    const ds_eager *c = w->call;
    const ds_op *op = c->op;
    const size_t n = c->n_rows;
    const char **after;
    bool full = false;
    DS_TRY(ds_work_load(w));
    DS_PUSH(w->arena, t->dy, n * (size_t)op->n_outputs);
    DS_PUSH_ZEROED(w->arena, t->dx, n * DS_MAX_INPUTS);
    DS_PUSH(w->arena, t->dcarried, n);
    DS_PUSH(w->arena, after, n);
    for (size_t r = 0; r < n; r++) {
        after[r] = t->back->after[r];
        full |= t->back->after[r] || t->back->before[r];
    }
    for (int o = 0; o < op->n_outputs; o++) {
        const size_t frame = ds_signature_bytes(&op->out[o]);
        void *zeros = NULL;
        if (!t->back->slopes[o])
            DS_TRY(ds_arena_push_zeroed(w->arena, &zeros, (size_t)w->n_out[o], frame));
        const char *g = zeros ? zeros : t->back->slopes[o];
        for (size_t r = 0; r < n; r++) {
            t->dy[(size_t)o * n + r] = g;
            g = g ? g + (size_t)ds_new_frames(&c->out[o][r]) * frame : g;
        }
    }
    for (int i = 0; i < ds_op_n_values(op); i++)
        DS_TRY(load_slopes(t, i, after, full));
    for (size_t r = 0; r < n; r++) {
        DS_TRY(ds_arena_push_zeroed(w->arena, &t->dcarried[r], op->carried_bytes, 1));
        if (after[r] && op->carried_bytes)
            memcpy(t->dcarried[r], after[r], op->carried_bytes);
    }
    return DS_OK;
}

/* Gives the slopes of input i's new frames and of its kept ones to whom they belong. */
static void hand_on(const turned *t, int i, char **before)
{
    const ds_eager *c = t->work.call;
    const ds_signature *s = &c->op->in[i];
    const size_t frame = ds_signature_bytes(s), n = (size_t)ds_signature_elements(s);
    char *to = t->back->inputs[i];
    for (size_t r = 0; r < c->n_rows; r++) {
        const ds_slope *dx = &t->dx[(size_t)i * c->n_rows + r];
        const int64_t kept = c->in[i][r].before.known - t->work.in[(size_t)i * c->n_rows + r].at;
        const size_t fresh = (size_t)ds_new_frames(&c->in[i][r]), n_old = (size_t)kept * frame;
        if (t->whole[i] && to) {
            add(t, s->dtype, to, (char *)dx->data + n_old, fresh * n);
            to += fresh * frame;
        }
        if (before[r] && n_old) {
            if (t->whole[i])
                memcpy(before[r], dx->data, n_old);
            else
                memset(before[r], 0, n_old);
            before[r] += n_old;
        }
    }
}

/* The operator's own part; all slopes of rows that are one lie beside each other, too. */
static ds_status prepare(turned *t, ds_run *run, bool *flat)
{
    ds_work *w = &t->work;
    const ds_eager *c = w->call;
    bool apart = false; /* windows that have room for more than new frames */
    *run = ds_work_run(w);
    run->prepared = NULL;
    if (c->op->def->flags & DS_OP_BODY) { /* its body runs again */
        void *made;
        DS_TRY(ds_arena_push(w->arena, &made, ds_op_prepared_bytes(c->op, run->k)));
        if (made)
            ds_op_prepare(c->op, made, c->weights, run->k);
        run->prepared = made;
    }
    for (int i = 0; i < ds_op_n_values(c->op); i++)
        apart |= t->whole[i];
    DS_TRY(
        ds_arena_push(w->arena, &t->b.scratch,
                      ds_scratch_bytes(&c->op->back_scratch, c->n_rows, w->n_in[0], w->n_out[0])));
    DS_TRY(ds_arena_push(w->arena, &t->workspace, DS_WORKSPACE_BYTES));
    *flat = !apart && ds_work_flatten(w, run);
    if (*flat) {
        for (int o = 1; o < c->op->n_outputs; o++)
            t->dy[o] = t->dy[(size_t)o * c->n_rows];
        for (int i = 0; i < ds_op_n_values(c->op); i++)
            t->dx[i] = (ds_slope){t->dx[(size_t)i * c->n_rows].data, 0, w->n_in[i]};
    }
    t->b.run = run;
    t->b.dy = t->dy;
    t->b.dx = t->dx;
    t->b.dcarried = t->dcarried;
    t->b.dweights = t->back->weights;
    return DS_OK;
}

ds_status ds_eager_backward(const ds_eager_back *back, ds_arena *arena)
{
    DS_SCOPED(ds_float_env_leave) ds_float_env callers;
    ds_float_env_enter(&callers);
    const ds_op *op = back->call->op;
    turned t = {.work = {.call = back->call, .arena = arena, .back = true}, .back = back};
    ds_run run;
    char **before;
    ds_arena_reset(arena);
    if (back->call->n_rows == 0)
        return DS_OK;
    DS_TRY(load(&t));
    DS_PUSH_COPY(arena, before, back->before, back->call->n_rows);
    bool flat = false; /* nothing is kept then */
    if (ds_work_runs(&t.work)) {
        DS_TRY(prepare(&t, &run, &flat));
        void *const workspace = ds_workspace_lend(t.workspace);
        op->def->backward(op, &t.b);
        (void)ds_workspace_lend(workspace);
    }
    for (int i = 0; i < ds_op_n_values(op) && !flat; i++)
        hand_on(&t, i, before);
    for (size_t r = 0; r < back->call->n_rows; r++)
        if (before[r] && op->carried_bytes)
            memcpy(before[r], t.dcarried[r], op->carried_bytes);
    return DS_OK;
}
