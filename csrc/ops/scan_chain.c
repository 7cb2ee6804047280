/* ops/scan_chain.c: the steps of a loop whose operators all work element by element: linear recurrences, gates.
 *
 * Element i of what is carried depends on element i alone. So some elements at a time, a tile, go through all frames
 * that are at hand, and what the steps make of them stays in the cache: a node is a call of a kernel on a tile. Where a
 * frame has many elements, functions of single elements before and behind the steps, and sums along the last axes, join
 * the chain; what is broadcast is spread over the tile.
 *
 * The functions are those of the nodes, and in their order, so that the bits are, too. */
#include "ops/scan_chain.h"

#include <string.h>

#include "ops/framewise.h"
#include "ops/fused.h"
#include "ops/move.h"
#include "ops/operands.h"
#include "ops/registry.h"

/* ---------------------------------------------------------------- which nodes */
typedef struct maker {
    const ds_op *op;
    ds_scan *s;
    ds_scan_body *body;
    ds_scan_chain *chain;
    ds_dtype dtype;
    int *last;      /* [n_values]: the last node of the chain that reads it */
    int *spread;    /* [n_values + n_weights]: in which room it is spread; -1 */
    size_t n_nodes; /* of the chain */
    bool taken
        [3 * CHAIN_NODES]; /* rooms: one for what a node gives, and two for what is spread for it */
} maker;

static bool same_elements(const maker *m, const ds_signature *s)
{
    return s->dtype == m->dtype && ds_elements(s) == m->chain->n;
}

/* Whether a node is a function of single elements, of as many as are carried. */
static bool chain_fits(const maker *m, const ds_op *node)
{
    ds_step_kind kind;
    int function;
    bool same = true;
    if (!ds_fused_function(node, &kind, &function) || kind > DS_STEP_BINARY ||
        !same_elements(m, &node->out[0]))
        return false;
    for (int i = 0; i < node->n_inputs && kind == DS_STEP_BINARY && function == DS_BINARY_POW; i++)
        same =
            same && same_elements(m, &node->in[i]); /* pow has ways of its own for one exponent */
    for (int i = 0; i < node->n_weights && function == DS_BINARY_POW; i++)
        same = same && (kind != DS_STEP_BINARY || ds_elements(&node->weight[i]) == 1);
    return same;
}

/* How many elements a sum adds of those that follow each other; 0: the node is none. */
static size_t chain_sums(const maker *m, const ds_op *node)
{
    const size_t n = ds_op_row_sums(node);
    return n > 0 && n <= CHAIN_BYTES / m->chain->element && same_elements(m, &node->in[0]) ? n : 0;
}

/* Whether all that read a node's output are in the chain, and there are some. */
static bool only_chain_reads(const maker *m, int value)
{
    const ds_scan_body *body = m->body;
    bool read = false;
    for (int c = 0; c < m->op->n_carried; c++)
        if (body->carried[c] == value)
            return false;
    for (int o = 0; o < m->op->n_outputs; o++)
        if (body->outputs[o] == value)
            return false;
    for (size_t j = 0; j < body->n_nodes; j++)
        for (int i = 0; i < body->nodes[j].op->n_inputs; i++)
            if (body->nodes[j].inputs[i] == value) {
                read = true;
                if (!body->nodes[j].chained)
                    return false;
            }
    return read;
}

/* Takes the nodes that can be reached without leaving the chain. */
static void chain_take(maker *m, bool *outside)
{
    ds_scan_body *const body = m->body;
    for (size_t j = 0; j < body->n_nodes; j++) {
        ds_scan_node *node = &body->nodes[j];
        bool within = node->phase == DS_SCAN_AFTER;
        for (int i = 0; i < node->op->n_inputs; i++)
            within = within && !outside[node->inputs[i]];
        const size_t n_sum = within ? chain_sums(m, node->op) : 0;
        const bool sums = n_sum > 0 && (m->chain->n_sum == 0 || n_sum == m->chain->n_sum);
        within = within && m->n_nodes < CHAIN_NODES && (sums || chain_fits(m, node->op));
        m->n_nodes += within;
        if (within && sums)
            m->chain->n_sum = n_sum;
        node->chained = within || node->phase == DS_SCAN_STEP;
        for (int o = 0; o < node->op->n_outputs; o++)
            outside[node->first_output + o] = node->phase == DS_SCAN_AFTER && (!within || sums);
    }
    for (size_t j = body->n_nodes; j-- > 0;) {
        ds_scan_node *node = &body->nodes[j];
        if (node->phase == DS_SCAN_BEFORE && m->n_nodes < CHAIN_NODES && chain_fits(m, node->op))
            m->n_nodes += node->chained = only_chain_reads(m, node->first_output);
    }
}

/* ---------------------------------------------------------------- its steps */
static int room_for(maker *m)
{
    int room = 0;
    while (m->taken[room])
        room++;
    m->taken[room] = true;
    m->chain->n_rooms = room >= m->chain->n_rooms ? room + 1 : m->chain->n_rooms;
    return room;
}

/* How an operand lies in a frame of the node's output: one dimension that is contiguous, one that repeats an element,
 * or more. */
static void chain_layout(chain_step *step, const ds_signature *x, const ds_signature *y)
{
    step->rank = 0;
    for (int d = 0; d < y->rank; d++) {
        const int64_t stride = ds_broadcast_stride(x, y->rank, d), size = y->shape[d];
        const int e = step->rank - 1;
        if (size == 1)
            continue;
        if (e >= 0 && step->stride[e] == stride * size) {
            step->size[e] *= size;
            step->stride[e] = stride;
        } else {
            step->size[step->rank] = size;
            step->stride[step->rank++] = stride;
        }
    }
    if (step->rank == 0) {
        step->size[0] = step->stride[0] = 1;
        step->rank = 1;
    }
}

/* Where an operand of a node is; what is broadcast is spread first. key: of what is spread. */
static chain_place operand_at(maker *m, chain_place from, int key, const ds_signature *x,
                              const ds_signature *y)
{
    ds_scan_chain *const chain = m->chain;
    chain_step spread = {.kind = CHAIN_SPREAD, .x = {from}};
    const bool kept = from.home == CHAIN_WEIGHT;
    chain_layout(&spread, x, y);
    if (spread.rank == 1) {
        from.step = (size_t)spread.stride[0];
        return from;
    }
    if (m->spread[key] < 0) {
        m->spread[key] = kept ? chain->n_once : room_for(m);
        spread.y = (chain_place){kept ? CHAIN_KEPT : CHAIN_ROOM, m->spread[key], 1};
        if (kept)
            chain->once[chain->n_once++] = spread;
        else
            chain->steps[chain->n_steps++] = spread;
    }
    return (chain_place){kept ? CHAIN_KEPT : CHAIN_ROOM, m->spread[key], 1};
}

/* Rooms of what no later node reads are free again. */
static void free_rooms(maker *m, int node)
{
    for (size_t v = 0; v < m->body->n_values; v++)
        if (m->last[v] == node) {
            if (m->spread[v] >= 0)
                m->taken[m->spread[v]] = false;
            if (m->chain->home[v].home == CHAIN_ROOM)
                m->taken[m->chain->home[v].number] = false;
        }
}

/* Whether what is carried as c may be written as soon as this node has it. */
static bool carried_at_once(const maker *m, int c, int node, int value)
{
    int times = 0;
    for (int i = 0; i < m->op->n_carried; i++)
        times += m->body->carried[i] == value;
    return times == 1 && m->body->hidden[value] && m->last[m->op->n_inputs + c] <= node;
}

static void add_node(maker *m, size_t j)
{
    const ds_scan_node *node = &m->body->nodes[j];
    const ds_op *op = node->op;
    ds_scan_chain *const chain = m->chain;
    const int value = node->first_output;
    chain_step step = {.p = {op->attr[0].x, op->attr[1].x, op->attr[2].x}};
    ds_step_kind kind = DS_STEP_UNARY;
    const bool sums = !ds_fused_function(op, &kind, &step.function);
    step.kind = sums ? CHAIN_SUM : kind == DS_STEP_UNARY ? CHAIN_UNARY : CHAIN_BINARY;
    for (int i = 0, n = step.kind == CHAIN_BINARY ? 2 : 1; i < n; i++) {
        int index = 0;
        if (n == 2 && ds_operands_locate(op, i, &index)) {
            const int weight = node->weights[index];
            step.x[i] =
                operand_at(m, (chain_place){CHAIN_WEIGHT, weight, 1},
                           (int)m->body->n_values + weight, &op->weight[index], &op->out[0]);
        } else {
            const int from = node->inputs[index];
            step.x[i] = operand_at(m, chain->home[from], from, &op->in[index],
                                   sums ? &op->in[index] : &op->out[0]);
        }
    }
    free_rooms(m, (int)j);
    chain_place *const home = &chain->home[value];
    *home = (chain_place){CHAIN_SLOTS, value, 1};
    for (int c = 0; c < m->op->n_carried; c++)
        if (m->body->carried[c] == value && carried_at_once(m, c, (int)j, value))
            *home = (chain_place){CHAIN_HELD, c, 1};
    if (home->home == CHAIN_SLOTS && m->body->hidden[value])
        *home = (chain_place){CHAIN_ROOM, room_for(m), 1};
    step.y = *home;
    chain->steps[chain->n_steps++] = step;
}

/* What is carried on and isn't yet where it is carried. */
static void add_moves(maker *m)
{
    ds_scan_chain *const chain = m->chain;
    for (int c = 0; c < m->op->n_carried; c++) {
        const chain_place from = chain->home[m->body->carried[c]];
        if (from.home == CHAIN_HELD && from.number == c)
            continue;
        chain->cyclic |= from.home == CHAIN_HELD;
        chain->held[chain->n_moved] = from;
        chain->moved[chain->n_moved++] = c;
    }
}

/* Which values only the chain sees, and which node reads each last. */
static void look_around(maker *m)
{
    const ds_scan_body *body = m->body;
    for (size_t j = 0; j < body->n_nodes; j++)
        if (body->nodes[j].chained)
            body->hidden[body->nodes[j].first_output] = true;
    for (int o = 0; o < m->op->n_outputs; o++)
        body->hidden[body->outputs[o]] = false;
    for (size_t j = 0; j < body->n_nodes; j++)
        for (int i = 0; i < body->nodes[j].op->n_inputs; i++) {
            const int v = body->nodes[j].inputs[i];
            if (body->nodes[j].chained)
                m->last[v] = (int)j;
            else
                body->hidden[v] = false;
        }
    for (int c = 0; c < m->op->n_carried; c++) {
        const int v = m->op->n_inputs + c;
        for (int o = 0; o < m->op->n_outputs; o++)
            m->chain->shown[c] |= body->outputs[o] == v;
        for (size_t j = 0; j < body->n_nodes; j++)
            for (int i = 0; i < body->nodes[j].op->n_inputs; i++)
                m->chain->shown[c] |= body->nodes[j].inputs[i] == v && !body->nodes[j].chained;
        body->hidden[v] = !m->chain->shown[c];
        m->last[body->carried[c]] = (int)body->n_nodes; /* the moves read it */
    }
}

/* Whether all that the steps do can be a chain. */
static bool is_chain(maker *m)
{
    const ds_op *op = m->op;
    m->dtype = op->carried[0].array.dtype;
    m->chain->n = ds_elements(&op->carried[0].array);
    m->chain->element = ds_dtype_bytes(m->dtype);
    for (int c = 0; c < op->n_carried; c++)
        if (!ds_is_real(m->dtype) || !same_elements(m, &op->carried[c].array))
            return false;
    for (size_t j = 0; j < m->body->n_nodes; j++) {
        const ds_scan_node *node = &m->body->nodes[j];
        m->n_nodes += node->phase == DS_SCAN_STEP;
        if (node->phase == DS_SCAN_STEP && !chain_fits(m, node->op))
            return false;
    }
    return m->n_nodes > 0 && m->n_nodes <= CHAIN_NODES;
}

ds_status ds_scan_make_chain(const ds_op *op, ds_scan *s, ds_scan_body *body)
{
    maker m = {.op = op, .s = s, .body = body};
    bool *outside;
    const size_t n_keys = body->n_values + (size_t)op->n_weights;
    if (op->n_carried == 0)
        return DS_OK;
    DS_PUSH_ZEROED(&s->arena, m.chain, 1);
    if (!is_chain(&m))
        return DS_OK;
    DS_PUSH_ZEROED(&s->arena, outside, body->n_values);
    DS_PUSH(&s->arena, m.last, body->n_values);
    DS_PUSH(&s->arena, m.spread, n_keys);
    DS_PUSH_ZEROED(&s->arena, m.chain->once, 3 * body->n_nodes);
    DS_PUSH_ZEROED(&s->arena, m.chain->steps, 3 * body->n_nodes);
    DS_PUSH_ZEROED(&s->arena, m.chain->home, body->n_values);
    for (size_t i = 0; i < body->n_values; i++)
        m.last[i] = -1;
    for (size_t i = 0; i < n_keys; i++)
        m.spread[i] = -1;
    for (size_t j = 0; j < body->n_nodes; j++)
        body->nodes[j].chained = body->nodes[j].phase == DS_SCAN_STEP;
    if (m.chain->n >= CHAIN_WIDE)
        chain_take(&m, outside);
    look_around(&m);
    for (size_t v = 0; v < body->n_values; v++)
        m.chain->home[v] = (chain_place){CHAIN_SLOTS, (int)v, 1};
    for (int c = 0; c < op->n_carried; c++)
        m.chain->home[op->n_inputs + c] = (chain_place){CHAIN_HELD, c, 1};
    for (size_t j = 0; j < body->n_nodes; j++)
        if (body->nodes[j].chained)
            add_node(&m, j);
    add_moves(&m);
    const int64_t last = op->carried[0].array.rank > 0
                             ? op->carried[0].array.shape[op->carried[0].array.rank - 1]
                             : 1;
    const size_t most = CHAIN_BYTES / m.chain->element;
    const size_t whole = m.chain->n_sum > 0     ? m.chain->n_sum
                         : (size_t)last <= most ? (size_t)last
                                                : 1;
    m.chain->tile = most / whole * whole;
    ds_scan_join_recurrences(m.chain);
    body->chain = m.chain;
    return DS_OK;
}

/* ---------------------------------------------------------------- running it */
typedef struct chain_run {
    const ds_scan_work *w;
    const ds_scan_chain *chain;
    char *rooms;
    char *held[DS_MAX_CARRIED]; /* of the row */
    size_t at, n;               /* the tile */
    size_t slot;
} chain_run;

static const float one = 1;
static const double wide_one = 1;

static char *chain_where(const chain_run *c, chain_place place)
{
    const size_t element = c->chain->element, offset = place.step * c->at * element;
    const ds_scan_work *w = c->w;
    switch (place.home) {
    case CHAIN_ROOM:
        return c->rooms + (size_t)place.number * CHAIN_BYTES;
    case CHAIN_KEPT:
        return c->rooms + (size_t)(c->chain->n_rooms + place.number) * CHAIN_BYTES;
    case CHAIN_HELD:
        return c->held[place.number] + offset;
    case CHAIN_WEIGHT:
        return (char *)(uintptr_t)w->run->weights[place.number] + offset;
    case CHAIN_ONE:
        return (char *)(uintptr_t)(element == sizeof(float) ? (const void *)&one : &wide_one);
    case CHAIN_SLOTS:
        break;
    }
    return w->values[place.number] + c->slot * ds_signature_bytes(&w->body->values[place.number]) +
           offset;
}

/* Writes the tile of what is broadcast. */
static void chain_spread(const chain_run *c, const chain_step *s)
{
    const size_t element = c->chain->element, inner = (size_t)s->size[s->rank - 1];
    const size_t step = (size_t)s->stride[s->rank - 1];
    const int outer = s->rank - 2;
    const char *const x = chain_where(c, (chain_place){s->x[0].home, s->x[0].number, 0});
    char *y = chain_where(c, s->y);
    for (size_t i = c->at, to = c->at + c->n; i < to;) {
        const size_t row = i / inner, within = i % inner;
        size_t from = within * step, rest = row, n_rows = 1;
        for (int d = outer; d >= 0; d--) {
            from += rest % (size_t)s->size[d] * (size_t)s->stride[d];
            rest /= (size_t)s->size[d];
        }
        size_t n = inner - within < to - i ? inner - within : to - i;
        if (within == 0 && n == inner) { /* rows of the same distance */
            const size_t left = (size_t)s->size[outer] - row % (size_t)s->size[outer];
            n_rows = (to - i) / inner < left ? (to - i) / inner : left;
        }
        ds_box rows = {.element = element};
        ds_box_add(&rows, (int64_t)n_rows, (int64_t)(n * element),
                   s->stride[outer] * (int64_t)element);
        ds_box_add(&rows, (int64_t)n, (int64_t)element, (int64_t)(step * element));
        ds_box_copy(&rows, y, x + from * element);
        y += n_rows * n * element;
        i += n_rows * n;
    }
}

static void chain_sum(const chain_run *c, const chain_step *s)
{
    const size_t n = c->chain->n_sum, element = c->chain->element, results = c->n / n;
    const char *x = chain_where(c, s->x[0]);
    char *y = chain_where(c, (chain_place){s->y.home, s->y.number, 0}) + c->at / n * element;
    double sums[CHAIN_SUMS];
    for (size_t done = 0, some; done < results; done += some) {
        some = results - done < CHAIN_SUMS ? results - done : CHAIN_SUMS;
        c->w->run->k->reduce(DS_REDUCE_SUM, sums, x + done * n * element, some, n, n, 1, NULL);
        for (size_t i = 0; i < some; i++)
            ds_sums_set_real(y, element, done + i, sums[i]);
    }
}

static ds_factor chain_factor_of(const chain_run *c, const chain_factor *f, size_t rows, size_t n)
{
    const size_t element = c->chain->element;
    if (f->row == SIZE_MAX || rows == 0)
        return (ds_factor){chain_where(c, f->at), f->at.step * n, f->at.step};
    return (ds_factor){chain_where(c, (chain_place){f->at.home, f->at.number, 0}) +
                           c->at / rows * f->row * element,
                       f->row, f->at.step};
}

/* Where a tile is one row, it may be rows of any length. */
static void chain_recur(const chain_run *c, const chain_recurrence *p)
{
    const size_t n = p->n > 0 ? p->n : c->n % 64 == 0 ? 64 : c->n;
    ds_linear_recurrence r = {.n_rows = c->n / n,
                              .n = n,
                              .exponential = p->exponential,
                              .before = chain_where(c, p->before),
                              .h = chain_where(c, p->h)};
    for (int i = 0; i < 2; i++) {
        r.a[i] = chain_factor_of(c, &p->a[i], p->n, n);
        r.b[i] = chain_factor_of(c, &p->b[i], p->n, n);
    }
    if (p->summed) {
        r.c = chain_factor_of(c, &p->c, p->n, n);
        r.sums = chain_where(c, (chain_place){p->sums.home, p->sums.number, 0}) +
                 c->at / n * c->chain->element;
    }
    r.room =
        c->rooms + (size_t)(c->chain->n_rooms + c->chain->n_once + c->chain->n_moved) * CHAIN_BYTES;
    c->w->run->k->linear_recurrence(&r);
}

static void chain_do(const chain_run *c, const chain_step *s)
{
    const ds_real_kernels *const k = c->w->run->k;
    switch (s->kind) {
    case CHAIN_SPREAD:
        chain_spread(c, s);
        break;
    case CHAIN_UNARY:
        k->unary((ds_unary)s->function, chain_where(c, s->y), chain_where(c, s->x[0]), c->n, s->p);
        break;
    case CHAIN_BINARY:
        k->binary((ds_binary)s->function, chain_where(c, s->y), chain_where(c, s->x[0]),
                  chain_where(c, s->x[1]), c->n, s->x[0].step, s->x[1].step);
        break;
    case CHAIN_SUM:
        chain_sum(c, s);
        break;
    case CHAIN_RECURRENCE:
        chain_recur(c, &s->recurrence);
        break;
    case CHAIN_GONE:
        break;
    }
}

static void chain_move(const chain_run *c)
{
    const ds_scan_chain *const chain = c->chain;
    const size_t n_bytes = c->n * chain->element;
    char *const beside = chain_where(c, (chain_place){CHAIN_KEPT, chain->n_once, 1});
    for (int i = 0; i < chain->n_moved && chain->cyclic; i++)
        memcpy(beside + (size_t)i * n_bytes, chain_where(c, chain->held[i]), n_bytes);
    for (int i = 0; i < chain->n_moved; i++) {
        char *to = chain_where(c, (chain_place){CHAIN_HELD, chain->moved[i], 1});
        const char *from =
            chain->cyclic ? beside + (size_t)i * n_bytes : chain_where(c, chain->held[i]);
        memcpy(to, from, n_bytes);
    }
}

/* What a frame is given of what was carried before it. */
static void chain_show(const chain_run *c, char *left)
{
    const ds_op *op = c->w->op;
    const size_t offset = c->at * c->chain->element, n_bytes = c->n * c->chain->element;
    for (int i = 0; i < op->n_carried; i++) {
        if (left)
            memcpy(left + op->carried[i].offset + offset, c->held[i] + offset, n_bytes);
        if (c->chain->shown[i])
            memcpy(chain_where(c, (chain_place){CHAIN_SLOTS, op->n_inputs + i, 1}),
                   c->held[i] + offset, n_bytes);
    }
}

size_t ds_scan_chain_bytes(const ds_scan_body *body)
{
    const ds_scan_chain *const chain = body->chain;
    return chain == NULL
               ? 0
               : (size_t)(chain->n_rooms + chain->n_once + chain->n_moved + 2) * CHAIN_BYTES;
}

void ds_scan_run_chain(const ds_scan_work *w, void *room)
{
    const ds_scan_chain *const chain = w->body->chain;
    chain_run c = {.w = w, .chain = chain, .rooms = room};
    for (size_t g = 0; g < w->n_groups; g++) {
        const ds_scan_slot *first = &w->slots[w->groups[g]];
        char *left = w->run->saved ? ds_scan_left(w, first) : NULL;
        if (first->position == 0)
            ds_scan_begin(w, first->row);
        for (int i = 0; i < w->op->n_carried; i++)
            c.held[i] = ds_run_carried(w->op, w->run, first->row, i);
        for (c.at = 0; c.at < chain->n; c.at += c.n) {
            c.n = chain->n - c.at < chain->tile ? chain->n - c.at : chain->tile;
            for (int i = 0; i < chain->n_once; i++)
                chain_do(&c, &chain->once[i]);
            for (c.slot = w->groups[g]; c.slot < w->groups[g + 1]; c.slot++) {
                const size_t frame = c.slot - w->groups[g];
                chain_show(&c, left ? left + frame * w->op->saved[0].n_bytes : NULL);
                for (int i = 0; i < chain->n_steps; i++)
                    chain_do(&c, &chain->steps[i]);
                chain_move(&c);
            }
        }
    }
}
