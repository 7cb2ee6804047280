/* exec/eager.c: puts together the windows of one operator's rows from kept frames and new ones, runs it, and
 * takes from them what is kept. */
#include "exec/work.h"

#include <string.h>

#include "cpu/float_env.h"

int64_t ds_eager_kept_from(const ds_op *op, int input, ds_pair in, ds_pair out)
{
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(op, out.known, first);
    return first[input] < in.known ? first[input] : in.known;
}

ds_status ds_eager_state_bytes(const ds_op *op, const ds_pair *in, ds_pair out, int64_t *n_kept,
                               size_t *n_bytes)
{
    *n_bytes = op->carried_bytes;
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(op, out.known, first);
    for (int i = 0; i < ds_op_n_values(op); i++) {
        size_t kept = first[i] < in[i].known ? (size_t)(in[i].known - first[i]) : 0, bytes;
        n_kept[i] = (int64_t)kept;
        DS_CHECK(!__builtin_mul_overflow(kept, ds_signature_bytes(&op->in[i]), &bytes) &&
                     !__builtin_add_overflow(*n_bytes, bytes, n_bytes),
                 DS_NO_MEMORY, "%s: %zu kept frames do not fit into memory", op->def->name, kept);
    }
    return DS_OK;
}

ds_status ds_eager_check_values(const ds_op *op, const void *values, const ds_counts *counts,
                                size_t n_rows, bool *bad)
{
    const char *at = values;
    ds_first_fault first = {DS_OK, ""};
    for (size_t r = 0; r < n_rows; r++) {
        const int64_t n = ds_new_frames(&counts[r]);
        bad[r] = false;
        ds_first_fault_note(&first, ds_op_check_values(op, at, n), &bad[r]);
        at = n ? at + (size_t)n * ds_signature_bytes(&op->in[op->def->checked_input]) : at;
    }
    return ds_first_fault_end(&first);
}

/* Whether the kept frames of row r are at hand and looked at: backward has none of rows that gave nothing. */
static bool reads_kept(const ds_work *w, size_t r)
{
    return w->call->states[r] &&
           (!w->back || w->call->op->n_carried || ds_new_frames(&w->call->out[0][r]) > 0);
}

/* Fills the windows of value input i: the new frames where they are if no row has kept any, else [kept | new].
 * Writes what they keep for the next call. */
static ds_status load_windows(ds_work *w, int i)
{
    const ds_eager *c = w->call;
    const size_t frame_bytes = ds_signature_bytes(&c->op->in[i]);
    const bool reads = !w->back || (c->op->reads & (unsigned)DS_READS_X << i);
    const char *fresh = c->values[i];
    ds_window *in = w->in + (size_t)i * c->n_rows;
    int64_t n_kept = 0;
    for (size_t r = 0; r < c->n_rows; r++) {
        const ds_pair before = c->in[i][r].before;
        if (c->states[r])
            in[r].at = ds_eager_kept_from(c->op, i, before, c->out[0][r].before);
        in[r].n = c->in[i][r].now.known - in[r].at;
        n_kept += before.known - in[r].at;
    }
    w->n_kept += n_kept;
    char *data = (char *)(uintptr_t)fresh;
    if (n_kept > 0 && reads)
        DS_TRY(ds_arena_push_array(w->arena, (void **)&data, (size_t)(n_kept + w->n_in[i]),
                                   frame_bytes));
    for (size_t r = 0; r < c->n_rows; r++) {
        const ds_pair now = c->in[i][r].now;
        const size_t n_fresh = (size_t)ds_new_frames(&c->in[i][r]) * frame_bytes;
        const size_t n_bytes = (size_t)in[r].n * frame_bytes, n_old = n_bytes - n_fresh;
        in[r].data = data;
        if (n_old && reads_kept(w, r)) {
            if (reads)
                memcpy(data, w->from[r], n_old);
            w->from[r] += n_old;
        }
        if (!reads)
            continue;
        if (n_kept > 0 && n_fresh) {
            memcpy(data + n_old, fresh, n_fresh);
            fresh += n_fresh;
        }
        const int64_t from = w->to[r] ? ds_eager_kept_from(c->op, i, now, c->out[0][r].now) : 0;
        if (w->to[r] && from < now.known) {
            const size_t n_left = (size_t)(now.known - from) * frame_bytes;
            memcpy(w->to[r], data + (n_bytes - n_left), n_left);
            w->to[r] += n_left;
        }
        data = n_bytes ? data + n_bytes : data;
    }
    return DS_OK;
}

static void list_targets(ds_work *w, int o)
{
    const ds_eager *c = w->call;
    char *data = c->outputs[o];
    for (size_t r = 0; r < c->n_rows; r++) {
        const ds_counts *counts = &c->out[o][r];
        const size_t n_bytes = (size_t)ds_new_frames(counts) * ds_signature_bytes(&c->op->out[o]);
        w->out[(size_t)o * c->n_rows + r] =
            (ds_target){data, counts->before.known, counts->now.known};
        data = n_bytes ? data + n_bytes : data;
        w->n_out[o] += ds_new_frames(counts);
    }
}

ds_status ds_work_load(ds_work *w)
{
    const ds_eager *c = w->call;
    const ds_op *op = c->op;
    const size_t n = c->n_rows;
    DS_PUSH(w->arena, w->in, n * (size_t)op->n_inputs);
    DS_PUSH(w->arena, w->count, n * (size_t)op->n_inputs);
    DS_PUSH(w->arena, w->out, n * (size_t)op->n_outputs);
    DS_PUSH(w->arena, w->carried, n);
    DS_PUSH(w->arena, w->from, n);
    DS_PUSH(w->arena, w->to, n);
    for (size_t r = 0; r < n; r++) {
        w->from[r] = c->states[r];
        w->to[r] = w->back ? NULL : c->new_states[r];
    }
    for (int i = 0; i < op->n_inputs; i++) {
        for (size_t r = 0; r < n; r++) {
            const ds_counts *counts = &c->in[i][r];
            const int64_t fresh = ds_new_frames(counts);
            w->count[(size_t)i * n + r] = *counts;
            w->in[(size_t)i * n + r] = (ds_window){NULL, counts->before.known, fresh};
            w->n_in[i] += fresh;
        }
        if (i < ds_op_n_values(op))
            DS_TRY(load_windows(w, i));
    }
    for (int o = 0; o < op->n_outputs; o++)
        list_targets(w, o);
    for (size_t r = 0; r < n; r++) {
        DS_TRY(ds_arena_push_zeroed(w->arena, &w->carried[r], op->carried_bytes, 1));
        if (op->carried_bytes && c->states[r] && (!w->back || op->reads & DS_READS_CARRIED))
            memcpy(w->carried[r], w->from[r], op->carried_bytes);
    }
    return DS_OK;
}

bool ds_work_flatten(ds_work *w, ds_run *run)
{
    static const bool not_ended = false;
    const ds_eager *c = w->call;
    if (!ds_op_framewise(c->op) || w->n_kept > 0)
        return false;
    for (int i = 0; i < c->op->n_inputs; i++) {
        w->in[i] = (ds_window){c->values[i], 0, w->n_in[i]};
        w->count[i] = (ds_counts){{0, 0}, {w->n_in[i], w->n_in[i]}};
    }
    for (int o = 0; o < c->op->n_outputs; o++)
        w->out[o] = (ds_target){c->outputs[o], 0, w->n_out[o]};
    run->n_rows = 1;
    run->ended = &not_ended;
    return true;
}

ds_run ds_work_run(const ds_work *w)
{
    const ds_eager *c = w->call;
    return (ds_run){.n_rows = c->n_rows,
                    .in = w->in,
                    .out = w->out,
                    .count = w->count,
                    .ended = c->ended,
                    .carried = w->carried,
                    .prepared = c->prepared,
                    .weights = c->weights,
                    .k = &c->kernels->real[ds_op_real(c->op) == DS_F64],
                    .saved = c->saved,
                    .drop = c->drop,
                    .frames_in = w->n_in[0],
                    .frames_out = w->n_out[0]};
}

bool ds_work_runs(const ds_work *w)
{
    const ds_op *op = w->call->op;
    bool any = false;
    for (int o = 0; o < op->n_outputs; o++)
        any |= w->n_out[o] > 0;
    for (int i = 0; i < op->n_inputs && op->n_carried > 0; i++)
        any |= w->n_in[i] > 0;
    return any;
}

static ds_status forward(ds_work *w)
{
    const ds_eager *c = w->call;
    ds_run run = ds_work_run(w);
    const size_t n_scratch = ds_op_scratch_bytes(c->op, c->n_rows, w->n_in[0], w->n_out[0]);
    const size_t n_prepared = c->prepared ? 0 : ds_op_prepared_bytes(c->op, run.k);
    DS_TRY(ds_arena_push(w->arena, &run.scratch, n_scratch));
    if (n_prepared) {
        void *made;
        DS_TRY(ds_arena_push(w->arena, &made, n_prepared));
        ds_op_prepare(c->op, made, c->weights, run.k);
        run.prepared = made;
    }
    (void)ds_work_flatten(w, &run);
    void *workspace;
    DS_TRY(ds_arena_push(w->arena, &workspace, DS_WORKSPACE_BYTES));
    workspace = ds_workspace_lend(workspace);
    c->op->def->forward(c->op, &run);
    (void)ds_workspace_lend(workspace);
    return DS_OK;
}

ds_status ds_eager_run(const ds_eager *eager, ds_arena *arena)
{
    DS_SCOPED(ds_float_env_leave) ds_float_env callers;
    ds_float_env_enter(&callers);
    const ds_op *op = eager->op;
    ds_work w = {.call = eager, .arena = arena};
    const int checked = op->def->checked_input;
    if (op->def->indices)
        DS_TRY(ds_eager_check_values(op, eager->values[checked], eager->in[checked], eager->n_rows,
                                     eager->bad));
    ds_arena_reset(arena);
    DS_TRY(ds_work_load(&w));
    if (ds_work_runs(&w))
        DS_TRY(forward(&w));
    for (size_t r = 0; r < eager->n_rows && op->n_carried > 0; r++)
        if (w.to[r])
            memcpy(w.to[r], w.carried[r], op->carried_bytes);
    return DS_OK;
}
