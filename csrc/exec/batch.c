#include "exec/batch.h"

#include <string.h>

/* Rows [first, first + n_rows) of a batch: what one thread runs. Its arrays are parts of those of the
 * whole batch, [row][edge]. */
typedef struct group {
    size_t first, n_rows;
    ds_pair *before, *now; /* counts */
    int64_t *at;           /* absolute position of the window's first frame */
    int64_t *keep;         /* first frame to keep for the next call */
    char **window;         /* [kept | new] */
    ds_window *in;         /* scratch of one node's run */
    ds_target *out;
    ds_counts *count;
    void **carried;
    void *scratch;
} group;

struct ds_batch {
    ds_allocator allocator;
    const ds_plan *plan;
    ds_slot *const *slots;
    const bool *ended;
    ds_pool *pool; /* within rows, where they are fewer than threads */
    size_t n_rows;
    ds_arena arena;
    size_t *row_bytes; /* [n_buffers + 1][n_rows]: of the shared buffers, and scratch */
    group *groups;
    size_t n_groups, groups_capacity;
};

ds_status ds_batch_create(ds_batch **batch, const ds_plan *plan)
{
    void *memory;
    DS_TRY(ds_allocate_zeroed(&plan->allocator, &memory, sizeof(ds_batch)));
    *batch = memory;
    (*batch)->allocator = plan->allocator;
    (*batch)->plan = plan;
    ds_arena_init(&(*batch)->arena, &plan->allocator);
    return DS_OK;
}

void ds_batch_destroy(ds_batch *batch)
{
    if (!batch)
        return;
    ds_arena_free(&batch->arena);
    ds_release(&batch->allocator, batch->groups, batch->groups_capacity * sizeof *batch->groups);
    ds_allocator a = batch->allocator;
    ds_release(&a, batch, sizeof *batch);
}

/* ---------------------------------------------------------------- phase 1: integers */
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

/* Pushes an array of `per_row` items for each row. */
#define PUSH(target, per_row)                                                                     \
    do {                                                                                          \
        void *memory_;                                                                            \
        DS_TRY(ds_arena_push_array(&b->arena, &memory_, b->n_rows *(per_row), sizeof *(target))); \
        (target) = memory_;                                                                       \
    } while (0)

/* Everything whose size follows from the number of rows; each group gets its part. */
static ds_status allocate_integers(ds_batch *b)
{
    const ds_plan *p = b->plan;
    size_t e = p->graph->n_edges, n_in = (size_t)p->max_inputs, n_out = (size_t)p->max_outputs;
    group all;
    ds_arena_reset(&b->arena);
    PUSH(all.before, e);
    PUSH(all.now, e);
    PUSH(all.at, e);
    PUSH(all.keep, e);
    PUSH(all.window, e);
    PUSH(all.in, n_in);
    PUSH(all.count, n_in);
    PUSH(all.out, n_out);
    PUSH(all.carried, 1);
    PUSH(b->row_bytes, (size_t)p->n_buffers + 1);
    for (group *g = b->groups; g < b->groups + b->n_groups; g++) {
        if (g->n_rows == 0)
            continue;
        g->before = all.before + g->first * e;
        g->now = all.now + g->first * e;
        g->at = all.at + g->first * e;
        g->keep = all.keep + g->first * e;
        g->window = all.window + g->first * e;
        g->in = n_in ? all.in + g->first * n_in : NULL;
        g->count = n_in ? all.count + g->first * n_in : NULL;
        g->out = n_out ? all.out + g->first * n_out : NULL;
        g->carried = all.carried + g->first;
    }
    return DS_OK;
}

/* Counts before and now of every edge for one row, and the frames to keep. */
static ds_status count_row(ds_batch *b, group *g, size_t r, const int64_t *n_frames)
{
    const ds_plan *p = b->plan;
    const ds_graph *graph = p->graph;
    size_t row = g->first + r, e = graph->n_edges;
    const ds_block *block = b->slots[row]->block;
    ds_pair *before = &g->before[r * e], *now = &g->now[r * e];
    int64_t *at = &g->at[r * e], *keep = &g->keep[r * e], frames[DS_MAX_INPUTS];
    memset(before, 0, e * sizeof *before); /* edges whose producer a rewrite dropped stay empty */
    memset(now, 0, e * sizeof *now);
    for (size_t i = 0; i < graph->n_inputs; i++) {
        int64_t more = n_frames[i * b->n_rows + row], have = block->frames[i];
        DS_CHECK(have <= DS_MOST_FRAMES - more, DS_ARGUMENT,
                 "%lld new frames after %lld: a stream holds 2^60 at most", (long long)more,
                 (long long)have);
        frames[i] = have + more;
        before[graph->inputs[i]] = (ds_pair){have, have};
        now[graph->inputs[i]] = (ds_pair){frames[i], frames[i]};
    }
    DS_CHECK(ds_clock_together(&p->clock, frames), DS_MISMATCH,
             "the inputs are further apart than the skew allows (%lld and %lld frames)",
             (long long)frames[0], (long long)frames[graph->n_inputs - 1]);
    ds_graph_counts(graph, false, before);
    ds_graph_counts(graph, b->ended[row], now);
    ds_graph_needs(graph, before, at);
    ds_graph_needs(graph, now, keep);
    for (size_t k = 0; k < e; k++) {
        at[k] = at[k] < before[k].known ? at[k] : before[k].known;
        keep[k] = !b->ended[row] && keep[k] < now[k].known ? keep[k] : now[k].known;
        const ds_edge_plan *edge = &p->edges[k];
        DS_CHECK(now[k].total <= 2 * DS_MOST_FRAMES, DS_ARGUMENT,
                 "%lld frames of input 0 are more than this model can count: edge %zu would hold more than 2^61",
                 (long long)frames[0], k);
        DS_ASSERT(edge->tail >= 0 || (before[k].known - at[k] <= edge->capacity &&
                                      now[k].known - keep[k] <= edge->capacity));
        DS_ASSERT(now[k].known >= before[k].known && keep[k] >= at[k]);
    }
    for (size_t j = 0; j < graph->n_nodes; j++) {
        ds_pair in[DS_MAX_INPUTS];
        const ds_node *node = &graph->nodes[j];
        if (!node->op->check.n_roots)
            continue;
        for (int i = 0; i < node->op->n_inputs; i++)
            in[i] = now[node->inputs[i]];
        DS_TRY(ds_op_check(node->op, in, b->ended[row]));
    }
    return DS_OK;
}

/* Counts all rows; the first error is reported, every row that it holds for is marked. */
static ds_status count_rows(ds_batch *b, group *g, const int64_t *n_frames, bool *bad)
{
    ds_status first = DS_OK;
    char message[DS_MESSAGE_BYTES] = "";
    for (size_t r = 0; r < g->n_rows; r++) {
        ds_status status = count_row(b, g, r, n_frames);
        bad[g->first + r] = status != DS_OK;
        if (status != DS_OK && first == DS_OK) {
            first = status;
            strncpy(message, ds_last_error(), sizeof message - 1);
        }
    }
    return first == DS_OK ? DS_OK : ds_fail(first, "%s", message);
}

/* ---------------------------------------------------------------- phase 1: memory */
static ds_status bytes_of(int64_t frames, size_t frame_bytes, size_t *n_bytes)
{
    DS_CHECK(!__builtin_mul_overflow((size_t)frames, frame_bytes, n_bytes), DS_NO_MEMORY,
             "%lld frames of %zu bytes do not fit into memory", (long long)frames, frame_bytes);
    return DS_OK;
}

/* Lays the rows' windows of one edge into its buffer, or into the streams' tails. */
static ds_status place_windows(ds_batch *b, group *g, size_t e, char *buffer)
{
    const ds_edge_plan *edge = &b->plan->edges[e];
    size_t n_edges = b->plan->graph->n_edges, offset = 0, n_bytes;
    for (size_t r = 0; r < g->n_rows; r++) {
        size_t i = r * n_edges + e;
        DS_TRY(bytes_of(g->now[i].known - g->at[i], edge->frame_bytes, &n_bytes));
        if (edge->tail >= 0) {
            ds_tail *tail = &b->slots[g->first + r]->tails[edge->tail];
            size_t used = (size_t)(g->before[i].known - g->at[i]) * edge->frame_bytes;
            DS_TRY(ds_tail_reserve(&b->allocator, tail, used, n_bytes));
            g->window[i] = tail->data;
        } else {
            g->window[i] = buffer ? buffer + offset : NULL;
            offset += n_bytes;
        }
    }
    return DS_OK;
}

static size_t saturated_sum(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b; /* more than any allocation gives */
}

/* Rounded up, so that sums of these are aligned too. */
static size_t aligned(size_t n_bytes)
{
    return saturated_sum(n_bytes, DS_ALIGNMENT - 1) / DS_ALIGNMENT * DS_ALIGNMENT;
}

/* The most that each row needs of every shared buffer and, last, of scratch. It is summed row by row:
 * so what a batch takes does not depend on how its rows were split, and a smaller one takes no more. */
static ds_status measure_rows(ds_batch *b, const group *g)
{
    const ds_plan *p = b->plan;
    const ds_graph *graph = p->graph;
    size_t n_edges = graph->n_edges, n_bytes;
    for (size_t r = 0; r < g->n_rows; r++) {
        const ds_pair *before = &g->before[r * n_edges], *now = &g->now[r * n_edges];
        size_t *most = &b->row_bytes[g->first + r]; /* steps of n_rows */
        for (int k = 0; k <= p->n_buffers; k++)
            most[(size_t)k * b->n_rows] = 0;
        for (size_t e = 0; e < n_edges; e++) {
            if (p->edges[e].buffer < 0)
                continue;
            DS_TRY(bytes_of(now[e].known - g->at[r * n_edges + e], p->edges[e].frame_bytes, &n_bytes));
            size_t *known = &most[(size_t)p->edges[e].buffer * b->n_rows];
            *known = n_bytes > *known ? n_bytes : *known;
        }
        size_t *scratch = &most[(size_t)p->n_buffers * b->n_rows];
        for (size_t j = 0; j < graph->n_nodes; j++) {
            const ds_node *node = &graph->nodes[j];
            int in = node->inputs[0], out = node->first_output;
            n_bytes = ds_op_scratch_bytes(node->op, 1, now[in].known - before[in].known,
                                          now[out].known - before[out].known) -
                      node->op->scratch.per_call;
            *scratch = n_bytes > *scratch ? n_bytes : *scratch;
        }
    }
    return DS_OK;
}

static size_t sum_rows(const ds_batch *b, const group *g, int k)
{
    size_t n_bytes = 0;
    for (size_t r = 0; r < g->n_rows; r++) {
        size_t row = b->row_bytes[(size_t)k * b->n_rows + g->first + r];
        n_bytes = saturated_sum(n_bytes, aligned(row));
    }
    return n_bytes;
}

static ds_status allocate_values(ds_batch *b, group *g)
{
    const ds_plan *p = b->plan;
    size_t n_edges = p->graph->n_edges, per_call = 0;
    DS_TRY(measure_rows(b, g));
    for (size_t e = 0; e < n_edges; e++)
        if (p->edges[e].buffer < 0)
            DS_TRY(place_windows(b, g, e, NULL));
    for (int buffer = 0; buffer < p->n_buffers; buffer++) {
        void *memory;
        DS_TRY(ds_arena_push(&b->arena, &memory, sum_rows(b, g, buffer)));
        for (size_t e = 0; e < n_edges; e++)
            if (p->edges[e].buffer == buffer)
                DS_TRY(place_windows(b, g, e, memory));
    }
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        if (p->graph->nodes[j].op->scratch.per_call > per_call)
            per_call = p->graph->nodes[j].op->scratch.per_call;
    size_t scratch = saturated_sum(aligned(per_call), sum_rows(b, g, p->n_buffers));
    return ds_arena_push(&b->arena, &g->scratch, scratch);
}

ds_status ds_batch_begin(ds_batch *batch, ds_slot *const *slots, const int64_t *n_frames,
                         const bool *ended, bool *bad, size_t n_rows, size_t n_threads)
{
    batch->slots = slots;
    batch->ended = ended;
    batch->n_rows = n_rows;
    if (n_rows)
        memset(bad, 0, n_rows * sizeof *bad);
    DS_TRY(check_frames(batch, n_frames, bad));
    size_t n_groups = n_rows < n_threads ? n_rows : n_threads;
    DS_TRY(make_groups(batch, n_groups < 1 ? 1 : n_groups));
    split_rows(batch, n_frames);
    DS_TRY(allocate_integers(batch));
    ds_status first = DS_OK;
    char message[DS_MESSAGE_BYTES] = "";
    for (size_t g = 0; g < batch->n_groups; g++) {
        ds_status status = count_rows(batch, &batch->groups[g], n_frames, bad);
        if (status != DS_OK && first == DS_OK) {
            first = status;
            strncpy(message, ds_last_error(), sizeof message - 1);
        }
    }
    if (first != DS_OK)
        return ds_fail(first, "%s", message);
    for (size_t g = 0; g < batch->n_groups; g++)
        DS_TRY(allocate_values(batch, &batch->groups[g]));
    return DS_OK;
}

/* ---------------------------------------------------------------- the caller's view */
static const group *find_group(const ds_batch *b, size_t row, size_t *r)
{
    const group *g = b->groups;
    while (row >= g->first + g->n_rows)
        g++;
    *r = row - g->first;
    return g;
}

/* Where the new frames of an edge lie for one row. */
static char *new_data(const ds_batch *b, const group *g, size_t r, size_t e)
{
    size_t i = r * b->plan->graph->n_edges + e;
    size_t kept = (size_t)(g->before[i].known - g->at[i]) * b->plan->edges[e].frame_bytes;
    return kept ? g->window[i] + kept : g->window[i];
}

void *ds_batch_input(const ds_batch *batch, size_t input, size_t row)
{
    size_t r;
    const group *g = find_group(batch, row, &r);
    return new_data(batch, g, r, (size_t)batch->plan->graph->inputs[input]);
}

int64_t ds_batch_output_frames(const ds_batch *batch, size_t output, size_t row, int64_t *start)
{
    size_t r;
    const group *g = find_group(batch, row, &r);
    size_t i = r * batch->plan->graph->n_edges + (size_t)batch->plan->graph->outputs[output];
    *start = g->before[i].known;
    return g->now[i].known - g->before[i].known;
}

const void *ds_batch_output(const ds_batch *batch, size_t output, size_t row)
{
    size_t r;
    const group *g = find_group(batch, row, &r);
    return new_data(batch, g, r, (size_t)batch->plan->graph->outputs[output]);
}

ds_status ds_batch_check(const ds_batch *batch, bool *bad)
{
    const ds_graph *graph = batch->plan->graph;
    ds_status first = DS_OK;
    char message[DS_MESSAGE_BYTES] = "";
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        size_t e = (size_t)node->inputs[0], r;
        if (!node->op->def->check_values)
            continue;
        DS_ASSERT(graph->edges[e].node < 0);
        for (size_t row = 0; row < batch->n_rows; row++) {
            const group *g = find_group(batch, row, &r);
            const size_t i = r * graph->n_edges + e;
            ds_status status = ds_op_check_values(node->op, new_data(batch, g, r, e),
                                                  g->now[i].known - g->before[i].known);
            bad[row] |= status != DS_OK;
            if (status != DS_OK && first == DS_OK) {
                first = status;
                strncpy(message, ds_last_error(), sizeof message - 1);
            }
        }
    }
    return first == DS_OK ? DS_OK : ds_fail(first, "%s", message);
}

/* ---------------------------------------------------------------- phase 2: values */
/* Puts the kept frames of an edge before its new ones. */
static void load_kept(ds_batch *b, group *g, size_t e)
{
    const ds_edge_plan *edge = &b->plan->edges[e];
    size_t n_edges = b->plan->graph->n_edges;
    if (edge->capacity == 0)
        return;
    for (size_t r = 0; r < g->n_rows; r++) {
        size_t i = r * n_edges + e;
        size_t n_bytes = (size_t)(g->before[i].known - g->at[i]) * edge->frame_bytes;
        if (n_bytes)
            memcpy(g->window[i], (const char *)b->slots[g->first + r]->block + edge->state_offset,
                   n_bytes);
    }
}

/* Saves what the next call needs of an edge. */
static void store_kept(ds_batch *b, group *g, size_t e)
{
    const ds_edge_plan *edge = &b->plan->edges[e];
    size_t n_edges = b->plan->graph->n_edges;
    for (size_t r = 0; r < g->n_rows; r++) {
        size_t i = r * n_edges + e;
        size_t n_bytes = (size_t)(g->now[i].known - g->keep[i]) * edge->frame_bytes;
        size_t skip = (size_t)(g->keep[i] - g->at[i]) * edge->frame_bytes;
        if (!n_bytes)
            continue;
        if (edge->tail < 0)
            memcpy((char *)b->slots[g->first + r]->block + edge->state_offset, g->window[i] + skip,
                   n_bytes);
        else if (skip)
            memmove(g->window[i], g->window[i] + skip, n_bytes);
    }
}

/* Stores what edges keep that nobody reads after node j. */
static void store_all(ds_batch *b, group *g, size_t j)
{
    const ds_plan *p = b->plan;
    for (int i = p->first_store[j]; i < p->first_store[j + 1]; i++)
        store_kept(b, g, (size_t)p->stores[i]);
}

/* Fills the run of one node; returns whether it has anything to do. */
static bool fill_run(ds_batch *b, group *g, size_t j, ds_run *run)
{
    const ds_plan *p = b->plan;
    const ds_node *node = &p->graph->nodes[j];
    const ds_op *op = node->op;
    size_t n_edges = p->graph->n_edges, n = g->n_rows;
    int n_values = ds_op_n_values(op);
    bool any = false;
    run->frames_in = run->frames_out = 0;
    for (size_t r = 0; r < n; r++) {
        for (int i = 0; i < op->n_inputs; i++) {
            size_t k = r * n_edges + (size_t)node->inputs[i], slot = (size_t)i * n + r;
            int64_t at = g->at[k];
            g->count[slot] = (ds_counts){g->before[k], g->now[k]};
            g->in[slot] = (ds_window){i < n_values ? g->window[k] : NULL, at, g->now[k].known - at};
            any |= op->n_carried > 0 && g->now[k].known > g->before[k].known;
            if (i == 0)
                run->frames_in += g->now[k].known - g->before[k].known;
        }
        for (int o = 0; o < op->n_outputs; o++) {
            size_t e = (size_t)(node->first_output + o), k = r * n_edges + e;
            g->out[(size_t)o * n + r] =
                (ds_target){new_data(b, g, r, e), g->before[k].known, g->now[k].known};
            any |= g->now[k].known > g->before[k].known;
            if (o == 0)
                run->frames_out += g->now[k].known - g->before[k].known;
        }
        g->carried[r] = op->n_carried
                            ? (char *)b->slots[g->first + r]->block + p->nodes[j].carried_offset
                            : NULL;
    }
    run->n_rows = n;
    run->in = g->in;
    run->out = g->out;
    run->count = g->count;
    run->ended = b->ended + g->first;
    run->carried = g->carried;
    run->prepared = p->nodes[j].prepared;
    run->weights = p->nodes[j].weights;
    run->k = &p->kernels->real[0];
    run->pool = b->pool;
    run->finish = NULL;
    run->scratch = g->scratch;
    return any;
}

static void run_group(void *context, size_t index)
{
    ds_batch *b = context;
    group *g = &b->groups[index];
    const ds_plan *p = b->plan;
    const ds_graph *graph = p->graph;
    for (size_t i = 0; i < graph->n_inputs; i++)
        load_kept(b, g, (size_t)graph->inputs[i]);
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        ds_run run;
        for (int o = 0; o < node->op->n_outputs; o++)
            load_kept(b, g, (size_t)(node->first_output + o));
        if (!node->silent && fill_run(b, g, j, &run))
            node->op->def->forward(node->op, &run);
        store_all(b, g, j);
    }
    store_all(b, g, graph->n_nodes);
    for (size_t r = 0; r < g->n_rows; r++)
        for (size_t i = 0; i < graph->n_inputs; i++)
            b->slots[g->first + r]->block->frames[i] =
                g->now[r * graph->n_edges + (size_t)graph->inputs[i]].known;
}

void ds_batch_run(ds_batch *batch, ds_pool *pool)
{
    batch->pool = batch->n_groups < ds_pool_threads(pool) ? pool : NULL;
    if (batch->n_groups == 1 || !pool) {
        for (size_t g = 0; g < batch->n_groups; g++)
            run_group(batch, g);
    } else {
        ds_pool_run(pool, run_group, batch, batch->n_groups);
    }
}
