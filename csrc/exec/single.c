#include "exec/single.h"

#include <string.h>

#include "cpu/float_env.h"

int64_t ds_single_kept_from(const ds_op *op, int input, ds_pair in, ds_pair out)
{
    int64_t first[DS_MAX_INPUTS];
    ds_op_need(op, out.known, first);
    return first[input] < in.known ? first[input] : in.known;
}

ds_status ds_single_state_bytes(const ds_op *op, const ds_pair *in, ds_pair out, size_t *n_bytes)
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

/* Everything that one run needs, in the arena. */
typedef struct work {
    const ds_single *s;
    ds_window *in;     /* [n_inputs][n_rows] */
    ds_target *out;    /* [n_outputs][n_rows] */
    ds_counts *count;  /* [n_inputs][n_rows] */
    int64_t *keep;     /* [n_values][n_rows]: first frame to keep after the call */
    const char **from; /* [n_rows]: what is unread of the row's state before */
    void **carried;    /* [n_rows] */
    void *scratch;
} work;

static ds_status allocate(work *w, ds_arena *a)
{
    const ds_op *op = w->s->op;
    size_t n = w->s->n_rows, n_in = (size_t)op->n_inputs;
    void *p;
    DS_TRY(ds_arena_push_array(a, &p, n * n_in, sizeof *w->in));
    w->in = p;
    DS_TRY(ds_arena_push_array(a, &p, n * n_in, sizeof *w->count));
    w->count = p;
    DS_TRY(ds_arena_push_array(a, &p, n * n_in, sizeof *w->keep));
    w->keep = p;
    DS_TRY(ds_arena_push_array(a, &p, n * (size_t)op->n_outputs, sizeof *w->out));
    w->out = p;
    DS_TRY(ds_arena_push_array(a, &p, n, sizeof *w->from));
    w->from = p;
    DS_TRY(ds_arena_push_array(a, &p, n, sizeof *w->carried));
    w->carried = p;
    if (n)
        memset(w->carried, 0, n * sizeof *w->carried);
    return DS_OK;
}

/* Builds the rows' windows of value input i: the new frames where they are if no row has kept any,
 * else [kept | new] in the arena. */
static ds_status build_windows(work *w, int i, ds_arena *a)
{
    const ds_single *s = w->s;
    size_t n = s->n_rows, bytes = ds_signature_bytes(&s->op->in[i]), all = 0;
    ds_window *in = &w->in[(size_t)i * n];
    bool any = false;
    for (size_t r = 0; r < n; r++) {
        const ds_counts *c = &s->in[i][r];
        int64_t at = s->states[r] ? ds_single_kept_from(s->op, i, c->before, s->out[0][r].before)
                                  : c->before.known;
        in[r] = (ds_window){NULL, at, c->now.known - at};
        any |= at < c->before.known;
        w->keep[(size_t)i * n + r] = ds_single_kept_from(s->op, i, c->now, s->out[0][r].now);
        DS_CHECK(!__builtin_add_overflow(all, (size_t)in[r].n, &all), DS_NO_MEMORY,
                 "%s: the batch does not fit into memory", s->op->def->name);
    }
    const char *values = s->values[i];
    void *memory = NULL;
    if (any)
        DS_TRY(ds_arena_push_array(a, &memory, all, bytes));
    char *window = memory;
    for (size_t r = 0; r < n; r++) {
        const ds_counts *c = &s->in[i][r];
        size_t kept = (size_t)(c->before.known - in[r].at) * bytes;
        size_t fresh = (size_t)(c->now.known - c->before.known) * bytes;
        in[r].data = any ? window : values;
        if (any && kept)
            memcpy(window, w->from[r], kept);
        if (any && fresh)
            memcpy(window + kept, values, fresh);
        if (kept)
            w->from[r] += kept;
        values = fresh ? values + fresh : values;
        window = any ? window + kept + fresh : window;
    }
    return DS_OK;
}

static ds_status load_carried(work *w, ds_arena *a)
{
    const ds_single *s = w->s;
    if (!s->op->n_carried)
        return DS_OK;
    for (size_t r = 0; r < s->n_rows; r++) {
        DS_TRY(ds_arena_push(a, &w->carried[r], s->op->carried_bytes));
        if (s->states[r])
            memcpy(w->carried[r], w->from[r], s->op->carried_bytes);
        else
            memset(w->carried[r], 0, s->op->carried_bytes);
    }
    return DS_OK;
}

static void store_states(const work *w)
{
    const ds_single *s = w->s;
    for (size_t r = 0; r < s->n_rows; r++) {
        char *to = s->new_states[r];
        if (!to)
            continue;
        for (int i = 0; i < ds_op_n_values(s->op); i++) {
            const ds_window *in = &w->in[(size_t)i * s->n_rows + r];
            int64_t keep = w->keep[(size_t)i * s->n_rows + r];
            size_t bytes = ds_signature_bytes(&s->op->in[i]);
            size_t n_bytes = (size_t)(in->at + in->n - keep) * bytes;
            if (n_bytes)
                memcpy(to, ds_at(in, keep, bytes), n_bytes);
            to += n_bytes;
        }
        if (s->op->n_carried)
            memcpy(to, w->carried[r], s->op->carried_bytes);
    }
}

/* Where each row's new frames go; returns whether there is anything to compute. */
static bool fill_targets(work *w, ds_run *run)
{
    const ds_single *s = w->s;
    const ds_op *op = s->op;
    bool any = false;
    for (int o = 0; o < op->n_outputs; o++) {
        char *data = s->outputs[o];
        size_t bytes = ds_signature_bytes(&op->out[o]);
        for (size_t r = 0; r < s->n_rows; r++) {
            const ds_counts *c = &s->out[o][r];
            int64_t frames = c->now.known - c->before.known;
            w->out[(size_t)o * s->n_rows + r] = (ds_target){data, c->before.known, c->now.known};
            data = frames ? data + (size_t)frames * bytes : data;
            any |= frames > 0;
            run->frames_out += o == 0 ? frames : 0;
        }
    }
    for (int i = 0; i < op->n_inputs; i++)
        for (size_t r = 0; r < s->n_rows; r++) {
            const ds_counts *c = &s->in[i][r];
            w->count[(size_t)i * s->n_rows + r] = *c;
            any |= op->n_carried > 0 && c->now.known > c->before.known;
            run->frames_in += i == 0 ? c->now.known - c->before.known : 0;
        }
    return any;
}

/* Looks at the new values of all rows; the first fault is reported. */
static ds_status check_values(const ds_single *s)
{
    if (!s->op->def->check_values)
        return DS_OK;
    const char *values = s->values[0];
    ds_status first = DS_OK;
    char message[DS_MESSAGE_BYTES] = "";
    for (size_t r = 0; r < s->n_rows; r++) {
        int64_t n = s->in[0][r].now.known - s->in[0][r].before.known;
        ds_status status = ds_op_check_values(s->op, values, n);
        s->bad[r] = status != DS_OK;
        if (status != DS_OK && first == DS_OK) {
            first = status;
            strncpy(message, ds_last_error(), sizeof message - 1);
        }
        values = n ? values + (size_t)n * ds_signature_bytes(&s->op->in[0]) : values;
    }
    return first == DS_OK ? DS_OK : ds_fail(first, "%s", message);
}

static ds_status single_run(const ds_single *single, ds_arena *arena)
{
    const ds_op *op = single->op;
    work w = {.s = single};
    DS_TRY(check_values(single));
    ds_arena_reset(arena);
    DS_TRY(allocate(&w, arena));
    for (size_t r = 0; r < single->n_rows; r++)
        w.from[r] = single->states[r];
    for (int i = 0; i < op->n_inputs; i++) {
        if (i < ds_op_n_values(op)) {
            DS_TRY(build_windows(&w, i, arena));
            continue;
        }
        for (size_t r = 0; r < single->n_rows; r++)
            w.in[(size_t)i * single->n_rows + r] = (ds_window){NULL, single->in[i][r].now.known, 0};
    }
    DS_TRY(load_carried(&w, arena));
    ds_run run = {0};
    if (fill_targets(&w, &run)) {
        const ds_real_kernels *k = &single->kernels->real[ds_op_real(op) == DS_F64];
        DS_TRY(ds_arena_push(arena, &w.scratch, ds_op_scratch_bytes(op, single->n_rows,
                                                                     run.frames_in,
                                                                     run.frames_out)));
        run.prepared = single->prepared;
        const size_t n_prepared = run.prepared ? 0 : ds_op_prepared_bytes(op, k);
        if (n_prepared) {
            void *prepared;
            DS_TRY(ds_arena_push(arena, &prepared, n_prepared));
            op->def->prepare(op, prepared, single->weights, k);
            run.prepared = prepared;
        }
        run.n_rows = single->n_rows;
        run.in = w.in;
        run.out = w.out;
        run.count = w.count;
        run.ended = single->ended;
        run.carried = w.carried;
        run.weights = single->weights;
        run.k = k;
        run.scratch = w.scratch;
        op->def->forward(op, &run);
    }
    store_states(&w);
    return DS_OK;
}

ds_status ds_single_run(const ds_single *single, ds_arena *arena)
{
    ds_float_env callers;
    ds_float_env_enter(&callers);
    const ds_status status = single_run(single, arena);
    ds_float_env_leave(&callers);
    return status;
}
