/* exec/batch.c: phase 1 of a call: integers, checks, sizes, memory. Phase 2 is exec/run.c. */
#include "exec/batch.h"

#include <string.h>

#include "exec/rows.h"

ds_status ds_batch_create(ds_batch **batch, const ds_plan *plan)
{
    void *memory;
    DS_TRY(ds_allocate_zeroed(&plan->allocator, &memory, sizeof(ds_batch)));
    ds_batch *b = memory;
    b->allocator = plan->allocator;
    b->plan = plan;
    ds_arena_init(&b->arena, &plan->allocator);
    const ds_status status = ds_positions_create(&b->positions, plan);
    if (status != DS_OK) {
        ds_batch_destroy(b);
        return status;
    }
    *batch = b;
    return DS_OK;
}

void ds_batch_destroy(ds_batch *batch)
{
    if (!batch)
        return;
    ds_arena_free(&batch->arena);
    ds_positions_destroy(batch->positions);
    ds_release(&batch->allocator, batch->groups, batch->groups_capacity * sizeof *batch->groups);
    ds_allocator a = batch->allocator;
    ds_release(&a, batch, sizeof *batch);
}

/* ---------------------------------------------------------------- rows into groups */
static ds_status make_groups(ds_batch *b, size_t n)
{
    if (n > b->groups_capacity) {
        void *memory;
        DS_TRY(ds_allocate_zeroed(&b->allocator, &memory, n * sizeof *b->groups));
        ds_release(&b->allocator, b->groups, b->groups_capacity * sizeof *b->groups);
        b->groups = memory;
        b->groups_capacity = n;
    }
    b->n_groups = n;
    return DS_OK;
}

/* Refuses rows with absurd numbers of new frames, before anything is added up. */
static ds_status check_frames(const ds_batch *b, const int64_t *n_frames, bool *bad)
{
    const int64_t *first = NULL;
    for (size_t r = 0; r < b->n_rows; r++)
        for (size_t i = 0; i < b->plan->graph->n_inputs; i++) {
            const int64_t *more = &n_frames[i * b->n_rows + r];
            if (*more >= 0 && *more < (int64_t)1 << 48)
                continue;
            bad[r] = true;
            first = first ? first : more;
        }
    DS_CHECK(!first, DS_ARGUMENT, "%lld new frames: expected a sensible number", (long long)*first);
    return DS_OK;
}

void ds_batch_expect(ds_batch *batch, ds_pool *pool)
{
    batch->pool = pool;
}

/* Whether nodes have enough to split within themselves: products of some size, of weights that don't stay in the
 * cache, or of many frames. */
static bool splits_within(const ds_plan *p, double n_rows, double frames)
{
    const double product = p->largest * (p->recurrent ? n_rows : frames);
    const bool much = p->read_bytes > 4 * DS_CACHED_BYTES ||
                      frames * p->frame_work > 0.3 * DS_LEAST_WORK * (double)p->graph->n_nodes;
    return product >= DS_LEAST_WORK / 4 && much;
}

/* Into how many parts the rows are split; workers are woken where they will have something to do. Where weights
 * don't stay in the cache, a part must have rows enough for each of them to be worth reading: else all rows
 * stay together, and nodes split themselves. */
static size_t count_groups(ds_batch *b, const int64_t *n_frames, size_t n_threads)
{
    const ds_plan *p = b->plan;
    double frames = 0;
    b->within = false;
    if (n_threads < 2)
        return 1;
    for (size_t r = 0; r < b->n_rows; r++)
        frames += (double)n_frames[r];
    const double parts = frames * p->frame_work / DS_LEAST_WORK;
    if (parts < 2)
        return 1;
    const size_t n_groups = parts < (double)n_threads ? (size_t)parts : n_threads;
    const double together = p->recurrent ? (double)b->n_rows : frames;
    const bool worth =
        p->read_bytes <= DS_CACHED_BYTES || together >= DS_LEAST_ROWS * (double)n_groups;
    const bool apart = worth && b->n_rows >= n_threads;
    b->within = !apart && splits_within(p, (double)b->n_rows, frames);
    if (apart || b->within)
        ds_pool_wake(b->pool);
    return apart ? n_groups : 1;
}

/* Splits the rows into runs of about equal numbers of new frames. */
static void split_rows(ds_batch *b, const int64_t *n_frames)
{
    int64_t all = 0, sum = 0;
    for (size_t r = 0; r < b->n_rows; r++)
        all += n_frames[r] + 1;
    size_t row = 0;
    for (size_t g = 0; g < b->n_groups; g++) {
        b->groups[g].first = row;
        int64_t goal = all / (int64_t)b->n_groups * (int64_t)(g + 1);
        while (row < b->n_rows && (g + 1 == b->n_groups || sum < goal))
            sum += n_frames[row++] + 1;
        b->groups[g].n_rows = row - b->groups[g].first;
    }
}

/* Everything whose size follows from the number of rows; each group gets its part. */
static ds_status allocate_integers(ds_batch *b)
{
    const ds_plan *p = b->plan;
    const size_t e = p->graph->n_edges, n_in = (size_t)p->max_inputs,
                 n_out = (size_t)p->max_outputs;
    const size_t n_buffers = (size_t)p->n_buffers, n = b->n_rows;
    ds_group all;
    size_t *offsets;
    ds_arena_reset(&b->arena);
    DS_PUSH(&b->arena, all.rows, n);
    DS_PUSH(&b->arena, all.stretches, n);
    DS_PUSH(&b->arena, offsets, n * e);
    DS_PUSH(&b->arena, all.in, n * n_in);
    DS_PUSH(&b->arena, all.count, n * n_in);
    DS_PUSH(&b->arena, all.out, n * n_out);
    DS_PUSH(&b->arena, all.carried, n);
    DS_PUSH(&b->arena, b->outputs, n * p->graph->n_outputs);
    for (ds_group *g = b->groups; g < b->groups + b->n_groups; g++) {
        DS_PUSH(&b->arena, g->buffers, n_buffers);
        DS_PUSH(&b->arena, g->frames, e);
        DS_PUSH(&b->arena, g->flat, e);
        DS_PUSH(&b->arena, g->bytes, e + n_buffers + 1);
        g->slots = b->slots + g->first;
        g->ended = b->ended + g->first;
        g->n_moved = g->n_stretches = 0;
        if (g->n_rows == 0)
            continue;
        g->rows = all.rows + g->first;
        g->stretches = all.stretches + g->first;
        for (size_t r = 0; r < g->n_rows; r++)
            g->stretches[r].offset = offsets + (g->first + r) * e;
        g->in = all.in + g->first * n_in;
        g->count = all.count + g->first * n_in;
        g->out = all.out + g->first * n_out;
        g->carried = all.carried + g->first;
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- integers */
/* What operators have to say about a row's lengths. */
static ds_status check_row(const ds_plan *p, const ds_place *now)
{
    for (size_t k = 0; k < p->n_checked; k++) {
        const ds_checked *checked = &p->checked[k];
        const ds_node *node = &p->graph->nodes[checked->node];
        if (!now->ended && !checked->always)
            continue;
        ds_pair in[DS_MAX_INPUTS];
        for (int i = 0; i < node->op->n_inputs; i++)
            in[i] = ds_pair_at(p, now, (size_t)node->inputs[i]);
        DS_TRY(ds_op_check(node->op, in, now->ended));
    }
    return DS_OK;
}

/* Where one row stands before and after the call. */
static ds_status count_row(ds_batch *b, ds_group *g, size_t r, const int64_t *n_frames)
{
    const ds_plan *p = b->plan;
    const size_t n_inputs = p->graph->n_inputs, row = g->first + r;
    const int64_t *have = g->slots[r]->block->frames;
    int64_t frames[DS_MAX_INPUTS];
    g->rows[r].now.edges = NULL; /* until all is right with it */
    for (size_t i = 0; i < n_inputs; i++) {
        const int64_t more = n_frames[i * b->n_rows + row];
        DS_CHECK(have[i] <= DS_MOST_FRAMES - more, DS_ARGUMENT,
                 "%lld new frames after %lld: a stream holds 2^60 at most", (long long)more,
                 (long long)have[i]);
        frames[i] = have[i] + more;
    }
    DS_CHECK(ds_clock_together(&p->clock, frames), DS_MISMATCH,
             "the inputs are further apart than the skew allows (%lld and %lld frames)",
             (long long)frames[0], (long long)frames[n_inputs - 1]);
    if (r > 0 && g->ended[r] == g->ended[r - 1] && g->rows[r - 1].now.edges) {
        /* as most often: the neighbour has come from where this one comes from, and gets as far */
        const int64_t *others = g->slots[r - 1]->block->frames;
        bool alike = true;
        for (size_t i = 0; i < n_inputs; i++)
            alike &= have[i] == others[i] &&
                     n_frames[i * b->n_rows + row] == n_frames[i * b->n_rows + row - 1];
        if (alike) {
            g->rows[r] = g->rows[r - 1];
            return DS_OK;
        }
    }
    DS_TRY(ds_positions_find(b->positions, have, false, &g->rows[r].before));
    ds_place now;
    DS_TRY(ds_positions_find(b->positions, frames, g->ended[r], &now));
    DS_TRY(check_row(p, &now));
    g->rows[r].now = now;
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
static void count_rows(ds_batch *b, ds_group *g, const int64_t *n_frames, bool *bad,
                       ds_first_fault *f)
{
    for (size_t r = 0; r < g->n_rows; r++) {
        if (ds_first_fault_note(f, count_row(b, g, r, n_frames), &bad[g->first + r]))
            continue;
        ds_stretch *s = &g->stretches[g->n_stretches];
        if (r > 0 && g->n_stretches > 0 && stand_alike(b->plan, s[-1].row, &g->rows[r])) {
            s[-1].n++;
            continue;
        }
        s->first = r;
        s->n = 1;
        s->row = &g->rows[r];
        g->n_stretches++;
    }
}

/* ---------------------------------------------------------------- memory */
static size_t saturated_sum(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b; /* more than any allocation gives */
}

static size_t saturated_product(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

/* Rounded up, so that sums of these are aligned too. */
static size_t aligned(size_t n_bytes)
{
    return saturated_sum(n_bytes, DS_ALIGNMENT - 1) / DS_ALIGNMENT * DS_ALIGNMENT;
}

/* Room behind what the tails of a stretch's rows keep. */
static ds_status make_tails(const ds_plan *p, const ds_group *g, const ds_stretch *s, size_t e)
{
    const ds_edge_plan *edge = &p->edges[e];
    for (size_t r = s->first; r < s->first + s->n; r++) {
        const int64_t kept = ds_row_kept(p, &g->rows[r], e);
        const int64_t fresh =
            ds_known_at(p, &g->rows[r].now, e) - ds_known_at(p, &g->rows[r].before, e);
        DS_TRY(ds_tail_reserve(&p->allocator, &g->slots[r]->tails[edge->tail], kept, fresh,
                               edge->frame_bytes));
    }
    return DS_OK;
}

void ds_group_clear(const ds_plan *p, ds_group *g)
{
    const size_t n_edges = p->graph->n_edges;
    memset(g->bytes, 0, n_edges * sizeof *g->bytes);
    memset(g->frames, 0, n_edges * sizeof *g->frames);
    memset(g->flat, true, n_edges * sizeof *g->flat);
}

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

ds_status ds_group_place(const ds_plan *p, ds_group *g, const ds_stretch *s, size_t *most)
{
    if (most)
        memset(most, 0, ((size_t)p->n_buffers + 1) * sizeof *most);
    for (size_t e = 0; e < p->graph->n_edges; e++) {
        const ds_span span = ds_span_of(p, s, e);
        size_t n_bytes;
        DS_ASSERT(span.fresh >= 0 && span.kept >= 0);
        DS_CHECK(
            !__builtin_mul_overflow((size_t)(span.kept + span.fresh), span.frame_bytes, &n_bytes),
            DS_NO_MEMORY, "%lld frames of %zu bytes do not fit into memory",
            (long long)(span.kept + span.fresh), span.frame_bytes);
        g->frames[e] += span.fresh * (int64_t)s->n;
        g->flat[e] &= span.where == DS_IN_BUFFER && span.kept == 0;
        if (span.where == DS_IN_TAIL)
            DS_TRY(make_tails(p, g, s, e));
        if (span.where != DS_IN_BUFFER)
            continue;
        s->offset[e] = g->bytes[e];
        g->bytes[e] = saturated_sum(g->bytes[e], saturated_product(n_bytes, s->n));
        if (most) {
            size_t *known = &most[p->edges[e].buffer];
            *known = n_bytes > *known ? n_bytes : *known;
        }
    }
    if (most)
        most[p->n_buffers] = row_scratch(p, s);
    return DS_OK;
}

/* The most that a row needs of each buffer (and, last, of scratch) is summed row by row: so what a batch takes
 * does not depend on how its rows were split, and a smaller one takes no more. */
static ds_status allocate_values(ds_batch *b, ds_group *g)
{
    const ds_plan *p = b->plan;
    const size_t n_buffers = (size_t)p->n_buffers;
    size_t *most = g->bytes + p->graph->n_edges, *sums;
    DS_PUSH(&b->arena, sums, n_buffers + 1);
    memset(sums, 0, (n_buffers + 1) * sizeof *sums);
    sums[n_buffers] = aligned(p->call_scratch);
    ds_group_clear(p, g);
    for (size_t i = 0; i < g->n_stretches; i++) {
        const ds_stretch *s = &g->stretches[i];
        DS_TRY(ds_group_place(p, g, s, most));
        for (size_t k = 0; k <= n_buffers; k++)
            sums[k] = saturated_sum(sums[k], saturated_product(aligned(most[k]), s->n));
    }
    for (size_t k = 0; k < n_buffers; k++) {
        void *memory;
        DS_TRY(ds_arena_push(&b->arena, &memory, sums[k]));
        g->buffers[k] = memory;
    }
    return ds_arena_push(&b->arena, &g->scratch, sums[n_buffers]);
}

ds_status ds_batch_begin(ds_batch *batch, ds_slot *const *slots, const int64_t *n_frames,
                         const bool *ended, bool *bad, size_t n_rows, size_t n_threads)
{
    const ds_plan *p = batch->plan;
    batch->slots = slots;
    batch->ended = ended;
    batch->n_rows = n_rows;
    if (n_rows)
        memset(bad, 0, n_rows * sizeof *bad);
    DS_TRY(check_frames(batch, n_frames, bad));
    DS_TRY(make_groups(batch, count_groups(batch, n_frames, n_threads)));
    split_rows(batch, n_frames);
    DS_TRY(allocate_integers(batch));
    DS_TRY(ds_positions_begin(batch->positions, n_rows));
    ds_first_fault f = {DS_OK, ""};
    for (size_t g = 0; g < batch->n_groups; g++)
        count_rows(batch, &batch->groups[g], n_frames, bad, &f);
    DS_TRY(ds_first_fault_end(&f));
    for (size_t g = 0; g < batch->n_groups; g++)
        DS_TRY(allocate_values(batch, &batch->groups[g]));
    for (size_t g = 0; g < batch->n_groups; g++) /* the caller writes to the inputs next */
        for (size_t i = 0; i < p->graph->n_inputs; i++)
            ds_group_make_way(p, &batch->groups[g], (size_t)p->graph->inputs[i]);
    return DS_OK;
}

/* ---------------------------------------------------------------- the caller's view */
/* A row's group and stretch. */
typedef struct found {
    const ds_group *group;
    const ds_stretch *stretch;
    size_t row; /* of the group */
} found;

static found find_row(const ds_batch *b, size_t row)
{
    const ds_group *g = b->groups;
    while (row >= g->first + g->n_rows)
        g++;
    row -= g->first;
    size_t low = 0, high = g->n_stretches; /* the last stretch that begins at the row or before */
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if (g->stretches[middle].first <= row)
            low = middle;
        else
            high = middle;
    }
    return (found){g, &g->stretches[low], row};
}

/* Where the new frames of an edge lie for one row, and how many there are. */
static char *new_frames(const ds_batch *b, size_t e, size_t row, int64_t *n)
{
    const found at = find_row(b, row);
    const ds_span span = ds_span_of(b->plan, at.stretch, e);
    char *data =
        ds_window_data(b->plan, at.group, at.stretch, &span, e, at.row - at.stretch->first);
    const ds_row *r = &at.group->rows[at.row];
    *n = ds_known_at(b->plan, &r->now, e) - ds_known_at(b->plan, &r->before, e);
    const size_t kept = (size_t)ds_row_kept(b->plan, r, e) * span.frame_bytes;
    return kept ? data + kept : data;
}

void *ds_batch_input(const ds_batch *batch, size_t input, size_t row)
{
    int64_t n;
    return new_frames(batch, (size_t)batch->plan->graph->inputs[input], row, &n);
}

int64_t ds_batch_output_frames(const ds_batch *batch, size_t output, size_t row, int64_t *start)
{
    const found at = find_row(batch, row);
    const size_t e = (size_t)batch->plan->graph->outputs[output];
    const ds_row *r = &at.group->rows[at.row];
    *start = ds_known_at(batch->plan, &r->before, e);
    return ds_known_at(batch->plan, &r->now, e) - *start;
}

const void *ds_batch_output(const ds_batch *batch, size_t output, size_t row)
{
    return batch->outputs[output * batch->n_rows + row];
}

ds_status ds_batch_check(const ds_batch *batch, bool *bad)
{
    const ds_graph *graph = batch->plan->graph;
    ds_first_fault f = {DS_OK, ""};
    for (size_t j = 0; j < graph->n_nodes && batch->plan->checks_values; j++) {
        const ds_node *node = &graph->nodes[j];
        const size_t e = (size_t)node->inputs[0];
        if (!node->op->def->check_values)
            continue;
        DS_ASSERT(graph->edges[e].node < 0);
        for (size_t row = 0; row < batch->n_rows; row++) {
            int64_t n;
            const char *values = new_frames(batch, e, row, &n);
            ds_first_fault_note(&f, ds_op_check_values(node->op, values, n), &bad[row]);
        }
    }
    return ds_first_fault_end(&f);
}

size_t ds_batch_moved(const ds_batch *batch)
{
    size_t n_bytes = 0;
    for (size_t g = 0; g < batch->n_groups; g++)
        n_bytes += batch->groups[g].n_moved;
    return n_bytes;
}

/* ---------------------------------------------------------------- phase 2 */
static void run_group(void *context, size_t index)
{
    ds_batch *b = context;
    ds_group_run(b, &b->groups[index], NULL);
}

void ds_batch_run(ds_batch *batch, ds_pool *pool)
{
    if (batch->n_groups == 1)
        ds_group_run(batch, &batch->groups[0], batch->within ? pool : NULL);
    else
        ds_pool_run(pool, run_group, batch, batch->n_groups);
}
