/* exec/step.c: phase 1 of a step: integers, checks, sizes, memory; and the copies at its ends. Phase 2 is
 * exec/run.c. */
#include "exec/step.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "cpu/float_env.h"
#include "exec/budget.h"
#include "exec/rows.h"

ds_status ds_step_create(ds_step **step, const ds_plan *plan, ds_pool *pool)
{
    ds_step *s;
    DS_TRY(ds_allocate_zeroed(&plan->allocator, (void **)&s, sizeof *s));
    s->plan = plan;
    s->pool = pool;
    DS_TRY_ELSE(ds_allocate(&plan->allocator, &s->workspace, DS_WORKSPACE_BYTES),
                ds_release(&plan->allocator, s, sizeof *s));
    ds_arena_init(&s->arena, &plan->allocator);
    ds_positions_init(&s->positions, plan);
    *step = s;
    return DS_OK;
}

void ds_step_destroy(ds_step *step)
{
    if (!step)
        return;
    const ds_allocator a = step->arena.allocator;
    ds_arena_free(&step->arena);
    ds_positions_free(&step->positions);
    ds_release(&a, step->workspace, DS_WORKSPACE_BYTES);
    ds_release(&a, step, sizeof *step);
}

ds_status ds_step_rows(ds_step *step, size_t n_rows)
{
    ds_arena_reset(&step->arena);
    step->n_rows = n_rows;
    step->input_names = NULL;
    step->n_watched = 0;
    DS_PUSH(&step->arena, step->slots, n_rows);
    DS_PUSH_ZEROED(&step->arena, step->n_frames, n_rows * step->plan->graph->n_inputs);
    DS_PUSH_ZEROED(&step->arena, step->ended, n_rows);
    DS_PUSH_ZEROED(&step->arena, step->bad, n_rows);
    return DS_OK;
}

/* ---------------------------------------------------------------- rows into groups */
/* Multiplications and elements (ds_plan.frame_work) that take a thread longer than waking it and waiting for it:
 * some tens of microseconds. */
#define WORTH_A_THREAD 1e6
/* Multiplications of a product that outweigh handing a part of it to a thread that is awake: some microseconds. */
#define WORTH_A_PART (WORTH_A_THREAD / 4)
/* Rows with which a thread makes up for reading more than that; of experts, rows of each. */
#define ROWS_PER_READING 16
/* Rows that share a reading of weights from the cache. */
#define ROWS_TOGETHER 64
/* Bytes of new frames of an edge, of rows that share a pass through the graph. */
#define BYTES_TOGETHER (1 << 18)

/* Refuses absurd numbers of new frames, before anything is added up. */
static ds_status check_frames(const ds_step *s)
{
    ds_first_fault f = {DS_OK, ""};
    for (size_t r = 0; r < s->n_rows; r++)
        for (size_t i = 0; i < s->plan->graph->n_inputs; i++) {
            const int64_t n = s->n_frames[i * s->n_rows + r];
            if (n < 0 || n >= (int64_t)1 << 48)
                ds_first_fault_note(&f,
                                    ds_fail(DS_ARGUMENT,
                                            "%lld new frames: expected a sensible number",
                                            (long long)n),
                                    &s->bad[r]);
        }
    return ds_first_fault_end(&f);
}

/* Whether nodes have enough to split within themselves: products of some size, and either weights that no core
 * keeps, so that each thread reads its part of them, or as much to do for most nodes. */
static bool splits_within(const ds_plan *p, double n_rows, double frames)
{
    const double product = p->largest * (p->recurrent ? n_rows : frames);
    return product >= WORTH_A_PART &&
           (p->read_bytes > 4 * DS_CACHED_BYTES ||
            frames * p->frame_work > WORTH_A_PART * (double)p->graph->n_nodes);
}

/* Into how many parts threads split the rows; workers are woken where they will have something to do. Where weights
 * don't stay in the cache, a part must have rows enough for each of them to be worth reading: else all rows
 * stay together, and nodes split themselves. */
static size_t count_parts(ds_step *s, double frames)
{
    const ds_plan *p = s->plan;
    const size_t n_threads = ds_pool_threads(s->pool);
    s->within = false;
    if (n_threads < 2)
        return 1;
    const double parts = frames * p->frame_work / WORTH_A_THREAD;
    if (parts < 2)
        return 1;
    const size_t n_groups = parts < (double)n_threads ? (size_t)parts : n_threads;
    const double together = p->recurrent ? (double)s->n_rows : frames;
    const bool worth = p->read_bytes <= DS_CACHED_BYTES ||
                       together >= ROWS_PER_READING * (double)n_groups * p->spread;
    const bool apart = worth && s->n_rows >= n_threads;
    s->within = !apart && splits_within(p, (double)s->n_rows, frames);
    if (apart || s->within)
        ds_pool_wake(s->pool);
    return apart ? n_groups : 1;
}

/* Into how many groups the rows are split: parts, and of many rows, where weights stay in the cache, so few that
 * their frames stay there, too, from node to node. */
static size_t count_groups(ds_step *s)
{
    const size_t n = s->n_rows;
    double frames = 0;
    for (size_t r = 0; r < n; r++)
        frames += (double)s->n_frames[r];
    const size_t parts = count_parts(s, frames);
    const double most = frames * s->plan->frame_bytes / BYTES_TOGETHER;
    const size_t filled = most < (double)n ? (size_t)most : n;
    const size_t blocks = filled > n / ROWS_TOGETHER ? filled : n / ROWS_TOGETHER;
    const bool near = !s->within && s->plan->read_bytes <= 2 * DS_CACHED_BYTES;
    return near && blocks > parts ? blocks : parts;
}

/* Splits the rows into runs of about equal numbers of new frames; each group gets its part of all whose size
 * follows from the number of rows. */
static ds_status make_groups(ds_step *s)
{
    const ds_plan *p = s->plan;
    const size_t n = s->n_rows, n_edges = p->graph->n_edges, n_buffers = (size_t)p->n_buffers;
    const size_t n_in = (size_t)p->max_inputs, n_out = (size_t)p->max_outputs;
    ds_group whole;
    bool *all_true;
    size_t *offsets, row = 0;
    int64_t all = 0, sum = 0;
    s->n_groups = count_groups(s);
    DS_PUSH_ZEROED(&s->arena, s->groups, s->n_groups);
    DS_PUSH(&s->arena, s->outputs, n * p->graph->n_outputs);
    DS_PUSH(&s->arena, s->rows, n);
    DS_PUSH(&s->arena, whole.stretches, n);
    DS_PUSH(&s->arena, offsets, n * n_edges);
    DS_PUSH(&s->arena, all_true, n);
    whole.fetch_rows = NULL;
    if (s->n_groups > 1 && p->read_bytes <= 2 * DS_CACHED_BYTES)
        DS_PUSH(&s->arena, whole.fetch_rows, n);
    DS_PUSH(&s->arena, whole.in, n * n_in);
    DS_PUSH(&s->arena, whole.count, n * n_in);
    DS_PUSH(&s->arena, whole.out, n * n_out);
    DS_PUSH(&s->arena, whole.carried, n);
    whole.parts = NULL;
    if (s->within)
        DS_PUSH(&s->arena, whole.parts, ds_pool_threads(s->pool) * n * n_out);
    for (size_t r = 0; r < n; r++) {
        s->rows[r].slot = s->slots[r];
        all_true[r] = true;
        whole.stretches[r].offset = offsets + r * n_edges;
        all += s->n_frames[r] + 1;
    }
    for (size_t k = 0; k < s->n_groups; k++) {
        ds_group *g = &s->groups[k];
        const int64_t goal = all / (int64_t)s->n_groups * (int64_t)(k + 1);
        g->first = row;
        while (row < n && (k + 1 == s->n_groups || sum < goal))
            sum += s->n_frames[row++] + 1;
        g->n_rows = row - g->first;
        DS_PUSH(&s->arena, g->buffers, n_buffers);
        DS_PUSH_ZEROED(&s->arena, g->edges, n_edges);
        if (g->n_rows == 0)
            continue;
        g->ended = s->ended + g->first;
        g->whole = all_true;
        g->rows = s->rows + g->first;
        g->fetched_room = -1;
        g->fetch_rows = whole.fetch_rows != NULL ? whole.fetch_rows + g->first : NULL;
        g->stretches = whole.stretches + g->first;
        g->in = whole.in + g->first * n_in;
        g->count = whole.count + g->first * n_in;
        g->out = whole.out + g->first * n_out;
        g->carried = whole.carried + g->first;
        g->parts = whole.parts;
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- integers */
/* Whether a row has come from where its neighbour comes from, and gets as far: as most often. */
static bool follows_neighbour(const ds_step *s, const ds_group *g, size_t r)
{
    const size_t row = g->first + r;
    if (r == 0 || g->ended[r] != g->ended[r - 1] || !g->rows[r - 1].now.edges)
        return false;
    const int64_t *have = g->rows[r].slot->block->frames;
    const int64_t *others = g->rows[r - 1].slot->block->frames;
    for (size_t i = 0; i < s->plan->graph->n_inputs; i++) {
        const int64_t *more = &s->n_frames[i * s->n_rows + row];
        if (have[i] != others[i] || more[0] != more[-1])
            return false;
    }
    return true;
}

/* An input that is given once comes whole with the frames that start the stream. */
static ds_status check_given(const ds_step *s, size_t i, int64_t have, int64_t more)
{
    const bool memory = s->plan->graph->edges[s->plan->graph->inputs[i]].signature.rate.num > 0;
    if (s->plan->clock.tick[i] != 0 || (memory ? (have > 0) != (more > 0) : have + more == 1))
        return DS_OK;
    char number[24];
    (void)snprintf(number, sizeof number, "%zu", i);
    const char *name = s->input_names ? DS_SHOWN(s->input_names[i]) : number;
    DS_CHECK(more > 0, DS_MISMATCH,
             "input %s is given once, with the start of a stream: these start without it", name);
    DS_CHECK(have > 0, DS_MISMATCH, "input %s is given once: expected 1 for a stream, got %lld",
             name, (long long)more);
    return ds_fail(DS_MISMATCH, "input %s is given once, with the start of a stream: these have it",
                   name);
}

/* Where one row stands before and after the step. */
static ds_status count_row(ds_step *s, ds_group *g, size_t r)
{
    const ds_plan *p = s->plan;
    const size_t n_inputs = p->graph->n_inputs;
    ds_row *row = &g->rows[r];
    const int64_t *have = row->slot->block->frames;
    int64_t frames[DS_MAX_INPUTS];
    row->now.edges = NULL; /* until all is right with it */
    if (follows_neighbour(s, g, r)) {
        row->before = row[-1].before;
        row->now = row[-1].now;
        return DS_OK;
    }
    for (size_t i = 0; i < n_inputs; i++) {
        const int64_t more = s->n_frames[i * s->n_rows + g->first + r];
        DS_CHECK(have[i] <= DS_MOST_FRAMES - more, DS_ARGUMENT,
                 "%lld new frames after %lld: a stream holds 2^60 at most", (long long)more,
                 (long long)have[i]);
        frames[i] = have[i] + more;
        DS_TRY(check_given(s, i, have[i], more));
    }
    DS_CHECK(ds_clock_together(&p->clock, frames), DS_MISMATCH,
             "the inputs are further apart than the skew allows (%lld and %lld frames)",
             (long long)frames[0], (long long)frames[n_inputs - 1]);
    DS_TRY(ds_positions_find(&s->positions, have, false, &row->before));
    ds_place now;
    DS_TRY(ds_positions_find(&s->positions, frames, g->ended[r], &now));
    DS_TRY(ds_positions_check(p, &now));
    row->now = now;
    return DS_OK;
}

/* Whether two rows have equally many frames of every edge. */
static bool stand_alike(const ds_plan *p, const ds_row *a, const ds_row *b)
{
    return a->before.edges == b->before.edges && a->now.edges == b->now.edges &&
           a->now.periods - a->before.periods == b->now.periods - b->before.periods &&
           (!a->now.ended || !p->uneven || a->now.periods == b->now.periods);
}

/* Counts all rows; every row that is at fault is marked. */
static void count_rows(ds_step *s, ds_group *g, ds_first_fault *f)
{
    for (size_t r = 0; r < g->n_rows; r++) {
        if (ds_first_fault_note(f, count_row(s, g, r), &s->bad[g->first + r]))
            continue;
        ds_row *row = &g->rows[r];
        ds_stretch *stretch = &g->stretches[g->n_stretches];
        if (r > 0 && g->n_stretches > 0 && stand_alike(s->plan, stretch[-1].rows, row)) {
            stretch--;
        } else {
            stretch->group = g;
            stretch->rows = row;
            stretch->n = 0;
            g->n_stretches++;
        }
        stretch->n++;
        row->stretch = stretch;
    }
}

/* ---------------------------------------------------------------- memory */
/* The scratch that a row takes, the most of any node. */
static size_t row_scratch(const ds_plan *p, const ds_stretch *s)
{
    size_t most = 0;
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const ds_node *node = &p->graph->nodes[j];
        if (!p->nodes[j].row_scratch)
            continue;
        const size_t n_bytes =
            ds_op_scratch_bytes(node->op, 1, ds_span_of(p, s, (size_t)node->inputs[0]).fresh,
                                ds_span_of(p, s, (size_t)node->first_output).fresh) -
            node->op->scratch.per_call;
        most = n_bytes > most ? n_bytes : most;
    }
    return most;
}

/* Places one stretch's windows behind those of earlier ones (offset, and what the group has of each edge so far).
 * Fills most [n_buffers + 2]: the bytes that a row needs of each buffer, of scratch, and of tails. */
static ds_status place(const ds_plan *p, ds_group *g, const ds_stretch *s, size_t *most)
{
    const size_t n_buffers = (size_t)p->n_buffers;
    memset(most, 0, (n_buffers + 2) * sizeof *most);
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        const ds_span span = ds_span_of(p, s, e);
        size_t n_bytes;
        DS_ASSERT(span.fresh >= 0 && span.kept >= 0);
        DS_CHECK(
            !__builtin_mul_overflow((size_t)(span.kept + span.fresh), span.frame_bytes, &n_bytes),
            DS_NO_MEMORY, "%lld frames of %zu bytes do not fit into memory",
            (long long)(span.kept + span.fresh), span.frame_bytes);
        ds_group_edge *in_group = &g->edges[e];
        in_group->frames += span.fresh * (int64_t)s->n;
        in_group->scattered |= span.where != DS_IN_BUFFER || span.kept > 0;
        if (span.where == DS_IN_TAIL)
            most[n_buffers + 1] =
                ds_saturated_sum(most[n_buffers + 1], (size_t)span.fresh * span.frame_bytes);
        if (span.where != DS_IN_BUFFER)
            continue;
        s->offset[e] = in_group->n_bytes;
        in_group->n_bytes =
            ds_saturated_sum(in_group->n_bytes, ds_saturated_product(n_bytes, s->n));
        size_t *known = &most[p->edges[e].buffer];
        *known = n_bytes > *known ? n_bytes : *known;
    }
    most[n_buffers] = row_scratch(p, s);
    return DS_OK;
}

/* Room behind what the tails of a stretch's rows keep. */
static ds_status make_tails(const ds_plan *p, const ds_stretch *s)
{
    for (size_t e = 0; e < p->graph->n_edges && p->n_tails > 0; e++) {
        const ds_span span = ds_span_of(p, s, e);
        for (ds_row *row = s->rows; row < s->rows + s->n && span.where == DS_IN_TAIL; row++)
            DS_TRY(ds_tail_reserve(&p->allocator, &row->slot->tails[p->edges[e].tail],
                                   ds_kept_at(p, &row->before, e), span.fresh, span.frame_bytes));
    }
    return DS_OK;
}

/* Refuses a call that takes too much, for the rows of the group that take most. */
static ds_status refuse_bytes(ds_step *step, const ds_group *g)
{
    const ds_plan *p = step->plan;
    size_t largest = 0, most = 0, edge = 0;
    const ds_stretch *greatest = g->stretches;
    for (size_t i = 0; i < g->n_stretches; i++) {
        size_t n_bytes = 0;
        for (size_t e = 0; e < p->graph->n_edges; e++) {
            const ds_span span = ds_span_of(p, &g->stretches[i], e);
            const size_t fresh = ds_saturated_product((size_t)span.fresh, span.frame_bytes);
            n_bytes = ds_saturated_sum(n_bytes, fresh);
            edge = fresh > largest ? e : edge;
            largest = fresh > largest ? fresh : largest;
        }
        greatest = n_bytes > most ? &g->stretches[i] : greatest;
        most = n_bytes > most ? n_bytes : most;
    }
    for (size_t r = 0; g->n_stretches > 0 && r < greatest->n; r++)
        step->bad[(size_t)(greatest->rows - step->rows) + r] = true;
    return ds_budget_refuse_call(p, step->n_bytes, edge, largest);
}

/* The most that a row needs of each buffer (and of scratch, and tails) is summed row by row: so what a step takes
 * does not depend on how its rows were split, and a smaller one takes no more. */
static ds_status allocate_values(ds_step *step, ds_group *g)
{
    const ds_plan *p = step->plan;
    const size_t n_buffers = (size_t)p->n_buffers;
    size_t *most, *sums;
    DS_PUSH(&step->arena, most, n_buffers + 2);
    DS_PUSH_ZEROED(&step->arena, sums, n_buffers + 2);
    sums[n_buffers] = ds_aligned(p->call_scratch);
    const size_t n_scratches = step->within ? ds_pool_threads(step->pool) : 1;
    for (size_t i = 0; i < g->n_stretches; i++) {
        const ds_stretch *s = &g->stretches[i];
        DS_TRY(place(p, g, s, most));
        for (size_t k = 0; k <= n_buffers + 1; k++)
            sums[k] = ds_saturated_sum(sums[k], ds_saturated_product(ds_aligned(most[k]), s->n));
    }
    for (size_t k = 0; k <= n_buffers + 1; k++)
        step->n_bytes = ds_saturated_sum(
            step->n_bytes, ds_saturated_product(sums[k], k == n_buffers ? n_scratches : 1));
    for (size_t o = 0; o < p->graph->n_outputs; o++) { /* the caller has a copy */
        const size_t e = (size_t)p->graph->outputs[o];
        step->n_bytes =
            ds_saturated_sum(step->n_bytes, ds_saturated_product((size_t)g->edges[e].frames,
                                                                 p->edges[e].frame_bytes));
    }
    if (step->n_bytes > p->budget.max_call_bytes)
        return refuse_bytes(step, g);
    for (size_t i = 0; i < g->n_stretches; i++)
        DS_TRY(make_tails(p, &g->stretches[i]));
    for (size_t k = 0; k < n_buffers; k++)
        DS_TRY(ds_arena_push(&step->arena, (void **)&g->buffers[k], sums[k]));
    g->scratch_bytes = sums[n_buffers];
    return ds_arena_push_array(&step->arena, &g->scratch, n_scratches, sums[n_buffers]);
}

ds_status ds_step_begin(ds_step *step)
{
    DS_TRY(check_frames(step));
    DS_TRY(make_groups(step));
    DS_TRY(ds_positions_begin(&step->positions, step->n_rows));
    ds_first_fault f = {DS_OK, ""};
    for (size_t k = 0; k < step->n_groups; k++)
        count_rows(step, &step->groups[k], &f);
    DS_TRY(ds_first_fault_end(&f));
    step->n_bytes = 0;
    for (size_t k = 0; k < step->n_groups; k++)
        DS_TRY(allocate_values(step, &step->groups[k]));
    for (size_t k = 0; k < step->n_groups; k++) /* the caller writes to the inputs next */
        for (size_t i = 0; i < step->plan->graph->n_inputs; i++)
            ds_group_make_way(step->plan, &step->groups[k], (size_t)step->plan->graph->inputs[i]);
    return DS_OK;
}

/* ---------------------------------------------------------------- the caller's view */
void *ds_step_room(const ds_step *step, size_t input, size_t row)
{
    const size_t e = (size_t)step->plan->graph->inputs[input];
    const ds_row *r = &step->rows[row];
    const ds_span span = ds_span_of(step->plan, r->stretch, e);
    return ds_fresh_data(step->plan, r, &span, e);
}

void ds_step_put(const ds_step *step, size_t input, size_t row, const void *frames,
                 const ptrdiff_t *strides, ds_element element)
{
    const int64_t n = step->n_frames[input * step->n_rows + row];
    if (!n)
        return;
    DS_SCOPED(ds_float_env_leave) ds_float_env callers;
    ds_float_env_enter(&callers); /* doubles are rounded */
    ds_layout_read(ds_step_room(step, input, row), frames, strides, element,
                   ds_step_input(step->plan, input), n);
}

ds_status ds_step_check(ds_step *step)
{
    const ds_graph *graph = step->plan->graph;
    ds_first_fault f = {DS_OK, ""};
    for (size_t j = 0; j < graph->n_nodes && step->plan->checks_values; j++) {
        const ds_node *node = &graph->nodes[j];
        if (!node->op->def->indices)
            continue;
        const ds_edge *edge = &graph->edges[node->inputs[node->op->def->checked_input]];
        if (edge->node >= 0)
            continue;
        const size_t input = (size_t)edge->output;
        for (size_t row = 0; row < step->n_rows; row++) {
            const int64_t n = step->n_frames[input * step->n_rows + row];
            const void *values = ds_step_room(step, input, row);
            ds_first_fault_note(&f, ds_op_check_values(node->op, values, n), &step->bad[row]);
        }
    }
    return ds_first_fault_end(&f);
}

int64_t ds_step_frames(const ds_step *step, size_t output, size_t row, int64_t *start)
{
    return ds_step_edge_frames(step, (size_t)step->plan->graph->outputs[output], row, start);
}

int64_t ds_step_edge_frames(const ds_step *step, size_t e, size_t row, int64_t *start)
{
    const ds_row *r = &step->rows[row];
    *start = ds_known_at(step->plan, &r->before, e);
    return ds_known_at(step->plan, &r->now, e) - *start;
}

const void *ds_step_values(const ds_step *step, size_t output, size_t row)
{
    return step->outputs[output * step->n_rows + row];
}

void ds_step_get(const ds_step *step, size_t output, size_t row, int64_t n, void *frames,
                 const ptrdiff_t *strides)
{
    if (n)
        ds_layout_write(frames, strides, ds_step_values(step, output, row),
                        ds_step_output(step->plan, output), n);
}

/* ---------------------------------------------------------------- phase 2 */
static void run_group(void *context, size_t index)
{
    ds_step *s = context;
    ds_group_run(s, &s->groups[index], NULL);
}

void ds_step_run(ds_step *step)
{
    DS_SCOPED(ds_float_env_leave) ds_float_env callers;
    ds_float_env_enter(&callers);
    void *const workspace = ds_workspace_lend(step->workspace);
    if (step->n_groups == 1)
        ds_group_run(step, &step->groups[0], step->within ? step->pool : NULL);
    else
        ds_pool_run(step->pool, run_group, step, step->n_groups);
    (void)ds_workspace_lend(workspace);
}
