/* exec/run.c: phase 2 of a step: values. Nothing here can fail.
 *
 * For each node in order: the kept frames of its output edges come to stand in front of the room for the new
 * ones, and its forward runs once for all rows of the group. Operators that look at single frames get all rows'
 * frames as those of one row where they lie side by side. Edges in buffers save what they keep behind their last
 * reader; at the end, streams learn how far they have come. */
#include <string.h>

#include "exec/rows.h"

/* ---------------------------------------------------------------- kept frames */
/* Moves the kept frames of a row to the front of their room, unless new ones fit behind them. */
static void make_room(const ds_plan *p, ds_group *g, ds_row *row, const ds_edge_plan *edge,
                      int64_t kept, int64_t fresh)
{
    char *const room = (char *)row->slot->block + edge->state_offset;
    int64_t *mark = ds_slot_passed(p, row->slot, edge);
    const size_t n_bytes = (size_t)kept * edge->frame_bytes;
    if (*mark + kept + fresh <= edge->room)
        return;
    memmove(room, room + (size_t)*mark * edge->frame_bytes, n_bytes);
    *mark = 0;
    g->n_moved += n_bytes;
}

void ds_group_make_way(const ds_plan *p, ds_group *g, size_t e)
{
    const ds_edge_plan *edge = &p->edges[e];
    for (size_t i = 0; edge->mark >= 0 && i < g->n_stretches; i++) {
        const ds_stretch *s = &g->stretches[i];
        const ds_span span = ds_span_of(p, s, e);
        for (ds_row *row = s->rows; span.where == DS_IN_ROOM && row < s->rows + s->n; row++)
            make_room(p, g, row, edge, span.kept, span.fresh);
    }
}

/* Moves kept frames of windows that lie in buffers: before a call, from the room to the front of the window;
 * after it, what the next call needs from its end to the front of the room. */
static void move_kept(const ds_plan *p, ds_group *g, size_t e, bool after)
{
    const ds_edge_plan *edge = &p->edges[e];
    for (size_t i = 0; edge->capacity > 0 && i < g->n_stretches; i++) {
        const ds_stretch *s = &g->stretches[i];
        const ds_span span = ds_span_of(p, s, e);
        const int64_t n = after ? ds_kept_at(p, &s->rows->now, e) : span.kept;
        const size_t n_bytes = (size_t)n * edge->frame_bytes;
        const size_t dropped = (size_t)(span.kept + span.fresh - n) * edge->frame_bytes;
        if (span.where != DS_IN_BUFFER || n_bytes == 0)
            continue;
        for (ds_row *row = s->rows; row < s->rows + s->n; row++) {
            char *window = ds_window_data(p, row, &span, e);
            if (after)
                memcpy((char *)row->slot->block + edge->state_offset, window + dropped, n_bytes);
            else
                memcpy(window, ds_slot_kept(p, row->slot, edge), n_bytes);
        }
        g->n_moved += n_bytes * s->n;
    }
}

/* What is no longer needed is dropped: the first kept frame moves on in rooms and tails. Where as many new frames as
 * came with this call would pass the room's end, those that stay go to its front at once, while they are in the
 * cache; not those of outputs, which the caller has yet to read. */
static void drop(const ds_plan *p, ds_group *g, size_t e)
{
    const ds_edge_plan *edge = &p->edges[e];
    for (size_t i = 0; i < g->n_stretches; i++) {
        const ds_stretch *s = &g->stretches[i];
        const ds_span span = ds_span_of(p, s, e);
        const bool in_room = span.where == DS_IN_ROOM && edge->last_use < (int)p->graph->n_nodes;
        for (ds_row *row = s->rows; row < s->rows + s->n; row++) {
            const int64_t kept = ds_kept_at(p, &row->now, e),
                          dropped =
                              ds_kept_from(p, &row->now, e) - ds_kept_from(p, &row->before, e);
            int64_t *mark = ds_slot_passed(p, row->slot, edge);
            *mark = span.where != DS_IN_BUFFER && kept > 0 ? *mark + dropped : 0;
            if (in_room)
                make_room(p, g, row, edge, kept, span.fresh);
        }
    }
}

/* Saves what edges keep that nobody reads after node j. */
static void store_kept(const ds_plan *p, ds_group *g, size_t j)
{
    for (int i = p->first_leaving[j]; i < p->first_leaving[j + 1]; i++) {
        const size_t e = (size_t)p->leaving[i];
        move_kept(p, g, e, true);
        if (p->edges[e].mark >= 0 || p->edges[e].tail >= 0)
            drop(p, g, e);
    }
}

/* Lets node j fetch, as far as its products do so in passing, what streams keep of the edge that is read next. */
static void fetch_room(const ds_plan *p, ds_group *g, size_t j)
{
    const int e = p->nodes[j].next_room;
    if (g->fetch_rows == NULL || e == g->fetched_room)
        return;
    g->fetched_room = e;
    g->fetch = (ds_fetch){.rows = g->fetch_rows};
    for (size_t i = 0; e >= 0 && i < g->n_stretches; i++) {
        const ds_stretch *s = &g->stretches[i];
        const ds_span span = ds_span_of(p, s, (size_t)e);
        const size_t n_bytes = (size_t)(span.kept + span.fresh) * span.frame_bytes;
        if (span.where != DS_IN_ROOM || n_bytes * g->n_rows > DS_CACHED_BYTES)
            continue;
        g->fetch.bytes = n_bytes > g->fetch.bytes ? n_bytes : g->fetch.bytes;
        for (size_t r = 0; r < s->n && n_bytes > 0; r++)
            g->fetch_rows[g->fetch.n_rows++] = ds_slot_kept(p, s->rows[r].slot, &p->edges[e]);
    }
    ds_fetch_lend(&g->fetch);
}

/* ---------------------------------------------------------------- one node */
/* All rows as one, from frame 0 on; false where what the node reads and writes doesn't lie side by side. */
static bool fill_flat(const ds_plan *p, ds_group *g, size_t j, ds_run *run)
{
    static const bool not_ended = false;
    const ds_node *node = &p->graph->nodes[j];
    if (!p->nodes[j].framewise)
        return false;
    for (int i = 0; i < node->op->n_inputs; i++) {
        const int e = node->inputs[i];
        const int64_t n = g->edges[e].frames;
        if (g->edges[e].scattered)
            return false;
        g->in[i] = (ds_window){g->buffers[p->edges[e].buffer], 0, n};
        g->count[i] = (ds_counts){{0, 0}, {n, n}};
    }
    for (int o = 0; o < node->op->n_outputs; o++) {
        const int e = node->first_output + o;
        if (g->edges[e].scattered)
            return false;
        g->out[o] = (ds_target){g->buffers[p->edges[e].buffer], 0, g->edges[e].frames};
    }
    run->n_rows = 1;
    run->ended = &not_ended;
    return true;
}

/* The windows of an input, one per row. */
static void fill_input(const ds_plan *p, ds_group *g, size_t e, bool is_value, ds_window *in,
                       ds_counts *count)
{
    for (size_t k = 0; k < g->n_stretches; k++) {
        const ds_stretch *s = &g->stretches[k];
        const ds_span span = ds_span_of(p, s, e);
        for (const ds_row *row = s->rows; row < s->rows + s->n; row++, in++, count++) {
            *count = (ds_counts){ds_pair_at(p, &row->before, e), ds_pair_at(p, &row->now, e)};
            in->data = is_value ? ds_window_data(p, row, &span, e) : NULL;
            in->at = ds_kept_from(p, &row->before, e);
            in->n = count->now.known - in->at;
        }
    }
}

/* Where the rows' new frames of an output go. */
static void fill_output(const ds_plan *p, ds_group *g, size_t e, ds_target *out)
{
    for (size_t k = 0; k < g->n_stretches; k++) {
        const ds_stretch *s = &g->stretches[k];
        const ds_span span = ds_span_of(p, s, e);
        for (const ds_row *row = s->rows; row < s->rows + s->n; row++, out++) {
            out->data = ds_fresh_data(p, row, &span, e);
            out->m0 = ds_known_at(p, &row->before, e);
            out->m1 = ds_known_at(p, &row->now, e);
        }
    }
}

static void fill_rows(const ds_plan *p, ds_group *g, size_t j, ds_run *run)
{
    const ds_node *node = &p->graph->nodes[j];
    const ds_op *op = node->op;
    const size_t n = g->n_rows;
    for (int i = 0; i < op->n_inputs; i++)
        fill_input(p, g, (size_t)node->inputs[i], i < ds_op_n_values(op), g->in + (size_t)i * n,
                   g->count + (size_t)i * n);
    for (int o = 0; o < op->n_outputs; o++)
        fill_output(p, g, (size_t)(node->first_output + o), g->out + (size_t)o * n);
    for (size_t r = 0; op->n_carried > 0 && r < n; r++)
        g->carried[r] = (char *)g->rows[r].slot->block + p->nodes[j].carried_offset;
    run->n_rows = n;
    run->ended = ds_graph_once(p->graph, node) ? g->whole : g->ended;
}

/* Whether node j has new frames to give, or, where it carries something, to take. */
static bool has_work(const ds_plan *p, const ds_group *g, size_t j)
{
    const ds_node *node = &p->graph->nodes[j];
    bool any = false;
    for (int o = 0; o < node->op->n_outputs; o++)
        any |= g->edges[node->first_output + o].frames > 0;
    for (int i = 0; i < node->op->n_inputs && node->op->n_carried > 0; i++)
        any |= g->edges[node->inputs[i]].frames > 0;
    return any && !node->silent;
}

/* ---------------------------------------------------------------- threads */
/* Multiplications and elements of a node below which another thread costs more than it saves. */
#define WORTH_SHARING (1 << 16)

/* One node's run, whose output frames are shared by threads. */
typedef struct sharing {
    const ds_op *op;
    const ds_run *run;
    ds_target *out; /* [n_parts][n_outputs][n_rows] */
    size_t n_parts, scratch_bytes;
} sharing;

/* Which of an output's frames, over all rows, a part has; returns how many. */
static int64_t cut_output(const sharing *s, size_t part, size_t o, ds_target *out)
{
    const size_t n_rows = s->run->n_rows;
    const ds_target *whole = s->run->out + o * n_rows;
    const int64_t frame_bytes = (int64_t)ds_signature_bytes(&s->op->out[o]);
    int64_t all = 0, before = 0;
    for (size_t r = 0; r < n_rows; r++)
        all += whole[r].m1 - whole[r].m0;
    const int64_t first = all * (int64_t)part / (int64_t)s->n_parts;
    const int64_t behind = all * (int64_t)(part + 1) / (int64_t)s->n_parts;
    for (size_t r = 0; r < n_rows; r++) {
        const int64_t n = whole[r].m1 - whole[r].m0;
        const int64_t a = first > before ? first - before : 0, b = behind - before;
        const int64_t from = a < n ? a : n, to = b < from ? from : b < n ? b : n;
        out[r] = (ds_target){whole[r].data, whole[r].m0 + from, whole[r].m0 + to};
        if (out[r].data)
            out[r].data = (char *)out[r].data + from * frame_bytes;
        before += n;
    }
    return behind - first;
}

static void run_part(void *context, size_t part)
{
    const sharing *s = context;
    const size_t n_outputs = (size_t)s->op->n_outputs, n_rows = s->run->n_rows;
    ds_target *out = s->out + part * n_outputs * n_rows;
    ds_run run = *s->run;
    run.out = out;
    run.scratch = (char *)run.scratch + part * s->scratch_bytes;
    run.pool = NULL;
    for (size_t o = n_outputs; o-- > 0;)
        run.frames_out = cut_output(s, part, o, out + o * n_rows);
    if (run.frames_out > 0)
        s->op->def->forward(s->op, &run);
}

/* Runs a node's forward: its output frames are shared by threads where it shares nothing itself. */
static void run_node(const ds_plan *p, const ds_group *g, size_t j, ds_run *run)
{
    const ds_op *op = p->graph->nodes[j].op;
    const ds_node_plan *node = &p->nodes[j];
    const size_t n_parts = ds_pool_threads(run->pool);
    if (node->by_frames && n_parts > 1 &&
        (double)run->frames_out * node->frame_work >= WORTH_SHARING) {
        sharing s = {op, run, g->parts, n_parts, g->scratch_bytes};
        ds_pool_run(run->pool, run_part, &s, n_parts);
    } else {
        op->def->forward(op, run);
    }
}

/* ---------------------------------------------------------------- the whole */
/* Runs node j. pool: for what threads share of it, or NULL. */
static void forward(const ds_plan *p, ds_group *g, size_t j, ds_pool *pool)
{
    const ds_node *node = &p->graph->nodes[j];
    ds_run run = {.in = g->in,
                  .out = g->out,
                  .count = g->count,
                  .carried = g->carried,
                  .prepared = p->nodes[j].prepared,
                  .weights = p->nodes[j].weights,
                  .k = &p->kernels->real[ds_op_real(node->op) == DS_F64],
                  .pool = pool,
                  .scratch = g->scratch,
                  .frames_in = g->edges[node->inputs[0]].frames,
                  .frames_out = g->edges[node->first_output].frames};
    if (!fill_flat(p, g, j, &run))
        fill_rows(p, g, j, &run);
    run_node(p, g, j, &run);
}

/* Remembers where the new frames of the outputs lie, before marks move. */
static void list_outputs(const ds_step *step, ds_group *g)
{
    const ds_plan *p = step->plan;
    for (size_t o = 0; o < p->graph->n_outputs; o++) {
        fill_output(p, g, (size_t)p->graph->outputs[o], g->out);
        for (size_t r = 0; r < g->n_rows; r++)
            step->outputs[o * step->n_rows + g->first + r] = g->out[r].data;
    }
}

/* Copies the new frames of those outputs of node j that somebody watches. */
static void show_watched(const ds_step *step, ds_group *g, size_t j)
{
    const ds_plan *p = step->plan;
    for (size_t w = 0; w < step->n_watched; w++) {
        const int e = step->watched[w];
        if (p->graph->edges[e].node != (int)j)
            continue;
        fill_output(p, g, (size_t)e, g->out);
        for (size_t r = 0; r < g->n_rows; r++)
            if (g->out[r].data && g->out[r].m1 > g->out[r].m0)
                memcpy(step->seen[w * step->n_rows + g->first + r], g->out[r].data,
                       (size_t)(g->out[r].m1 - g->out[r].m0) * p->edges[e].frame_bytes);
    }
}

void ds_group_run(const ds_step *step, ds_group *g, ds_pool *pool)
{
    const ds_plan *p = step->plan;
    const ds_graph *graph = p->graph;
    for (size_t i = 0; i < graph->n_inputs; i++)
        move_kept(p, g, (size_t)graph->inputs[i], false);
    for (size_t j = 0; j < graph->n_nodes; j++) {
        const ds_node *node = &graph->nodes[j];
        for (int o = 0; o < node->op->n_outputs; o++) {
            ds_group_make_way(p, g, (size_t)(node->first_output + o));
            move_kept(p, g, (size_t)(node->first_output + o), false);
        }
        if (has_work(p, g, j)) {
            fetch_room(p, g, j);
            forward(p, g, j, pool);
        }
        show_watched(step, g, j);
        store_kept(p, g, j);
    }
    ds_fetch_lend(NULL);
    list_outputs(step, g);
    store_kept(p, g, graph->n_nodes);
    for (ds_row *row = g->rows; row < g->rows + g->n_rows; row++)
        for (size_t i = 0; i < graph->n_inputs; i++)
            row->slot->block->frames[i] = ds_known_at(p, &row->now, (size_t)graph->inputs[i]);
}
