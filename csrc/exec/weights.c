/* exec/weights.c: packs weights, copies what stays of those that are lent, gives back what is replaced, and unpacks it
 * for whoever must see it. */
#include "exec/weights.h"

#include <string.h>

#include "base/utf8.h"
#include "codec/sort.h"
#include "exec/budget.h"
#include "ops/fused.h"
#include "ops/packed.h"
#include "ops/scan.h"

/* ---------------------------------------------------------------- packing */
static size_t count_weights(const ds_graph *g)
{
    size_t n = 0;
    for (size_t j = 0; j < g->n_nodes; j++)
        n += (size_t)g->nodes[j].op->n_weights;
    return n;
}

static ds_status list_weights(ds_plan *p)
{
    const void **weights;
    DS_PUSH(&p->arena, weights, count_weights(p->graph));
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        p->nodes[j].weights = weights;
        for (int i = 0; i < p->graph->nodes[j].op->n_weights; i++)
            *weights++ = p->graph->nodes[j].weights[i].data;
    }
    return DS_OK;
}

/* Products by tiles are refused where there are none; the reference has them, as the definition. */
static ds_status check_tiles(const ds_plan *p)
{
    const bool can = p->kernels->real[0].tiles || p->kernels->isa == DS_ISA_REF;
    for (size_t j = 0; j < p->model->n_nodes && !can; j++) {
        const ds_node *node = &p->model->nodes[j];
        DS_CHECK(!ds_op_splits(node->op), DS_MODE,
                 "%s (%s): products of fp32-tiles need a processor's tile units, and kernels %s "
                 "have none; "
                 "\"fp32\" does without",
                 node->path && *node->path ? DS_SHOWN(node->path) : "the forward",
                 node->op->def->name, p->kernels->name);
    }
    return DS_OK;
}

/* Of a file that is read once, memory holds so much at a time. */
#define MOST_MAPPED ((size_t)1 << 26)

/* What all nodes have prepared but for elements of weights: tables, and what packed weights say of themselves. */
static ds_status prepare_nodes(ds_plan *p)
{
    const ds_real_kernels *const k = &p->kernels->real[0];
    size_t offset = 0;
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const size_t n_bytes = ds_op_prepared_bytes(p->graph->nodes[j].op, k);
        DS_TRY(ds_budget_add(p, j, n_bytes));
        DS_CHECK(
            !__builtin_add_overflow(p->prepared_bytes, ds_aligned(n_bytes), &p->prepared_bytes),
            DS_NO_MEMORY, "the weights do not fit into memory");
    }
    DS_TRY(ds_allocate(&p->allocator, &p->prepared, p->prepared_bytes));
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const ds_op *op = p->graph->nodes[j].op;
        const size_t n_bytes = ds_op_prepared_bytes(op, k);
        if (!n_bytes)
            continue;
        p->nodes[j].prepared = (char *)p->prepared + offset;
        ds_op_prepare(op, p->nodes[j].prepared, p->nodes[j].weights, k);
        offset += ds_aligned(n_bytes);
    }
    return DS_OK;
}

/* The packed weights of a node, one behind the other. */
static ds_packed *first_packed(const ds_plan *p, size_t j, size_t *n_bytes)
{
    const ds_op *main = ds_fused_main(p->graph->nodes[j].op);
    const bool packs = p->nodes[j].prepared && (main->def->flags & DS_OP_PACKS);
    const ds_real_kernels *k = &p->kernels->real[0];
    *n_bytes = packs ? ds_op_prepared_bytes(main, k) : 0;
    if (p->nodes[j].prepared && main->def->packed_bytes)
        *n_bytes = main->def->packed_bytes(main, k);
    return p->nodes[j].prepared;
}

/* Fills `all`, if it is not NULL, with the packed weights of all nodes, `nodes` with whose they are; returns how many
 * there are. */
static size_t list_packed(const ds_plan *p, ds_packed **all, uint32_t *nodes)
{
    size_t n = 0, n_bytes;
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        ds_packed *first = first_packed(p, j, &n_bytes);
        DS_EACH_PACKED(w, first, n_bytes)
        {
            if (all) {
                all[n] = w;
                nodes[n] = (uint32_t)j;
            }
            n++;
        }
    }
    return n;
}

static int compare_pairs(const uintptr_t (*pairs)[2], size_t n)
{
    int order = 0;
    for (size_t i = 0; i < n && order == 0; i++)
        order = pairs[i][0] < pairs[i][1] ? -1 : pairs[i][0] > pairs[i][1];
    return order;
}

/* 0: the elements of both are the same bytes. */
static int compare_packed(const void *context, uint32_t a, uint32_t b)
{
    ds_packed *const *all = context;
    const ds_packed *x = all[a], *y = all[b];
    const uintptr_t pairs[][2] = {{(uintptr_t)x->raw - x->start, (uintptr_t)y->raw - y->start},
                                  {x->start, y->start},
                                  {x->n_cols, y->n_cols},
                                  {x->depth, y->depth},
                                  {x->format, y->format},
                                  {x->element, y->element},
                                  {x->stored, y->stored}};
    _Static_assert(sizeof x->layout == 9 * sizeof(size_t), "nothing between its numbers");
    const int order = memcmp(&x->layout, &y->layout, sizeof x->layout);
    return order ? order : compare_pairs(pairs, sizeof pairs / sizeof *pairs);
}

/* Fills same [n]: of each packed weight the first whose elements are the same. */
static ds_status find_same(ds_packed *const *all, size_t n, uint32_t *same, ds_arena *scratch)
{
    uint32_t *order;
    DS_PUSH(scratch, order, n);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    ds_sort_indices(order, n, compare_packed, all);
    for (size_t i = 0; i < n; i++)
        same[order[i]] = i > 0 && compare_packed(all, order[i - 1], order[i]) == 0
                             ? same[order[i - 1]]
                             : order[i];
    return DS_OK;
}

/* How a weight that is unmade is made: two of the same data, for which this is equal, are alike. */
static size_t rounding_of(const ds_weight *weight, const ds_op *op, int i)
{
    if (!weight->unmade)
        return 0;
    const size_t of = op->def->scale_of ? (uintptr_t)op : 8 * op->def->narrows(op, i);
    return of + ds_op_stored(op, i);
}

/* Room for a weight that is unmade, NULL before the first, and what lies there. */
typedef struct made_weight {
    char *data;
    const void *from;
    size_t rounding;
} made_weight;

/* Whether packing rounds floats as its operator does: each number by itself, or by the scale of a column. */
static bool rounds_alike(const ds_packed *packed, const ds_weight *weight, const ds_op *op)
{
    const ds_stored stored = ds_op_stored(op, packed->weight);
    return weight->narrow.data == NULL && packed->stored == stored && op->def->scale_of == NULL &&
           (stored != DS_STORED_INT8 || packed->depth == op->def->narrows(op, packed->weight));
}

/* Packs elements of a node's weight, which is made before where it has to be. */
static ds_status pack_made(const ds_plan *p, size_t j, ds_packed *packed, void *to,
                           made_weight *made, ds_arena *scratch)
{
    const ds_op *op = ds_fused_main(p->graph->nodes[j].op);
    const ds_weight *const weight = &p->graph->nodes[j].weights[packed->weight];
    const void *const raw = packed->raw;
    const size_t rounding = rounding_of(weight, op, packed->weight);
    const bool makes = weight->unmade && !rounds_alike(packed, weight, op);
    if (makes && (made->from != weight->data || made->rounding != rounding)) {
        if (made->data == NULL)
            DS_PUSH(scratch, made->data, ds_graph_most_unmade(p->graph));
        DS_TRY(ds_weight_make(&p->allocator, weight, op, packed->weight, made->data));
        made->from = weight->data;
        made->rounding = rounding;
    }
    packed->raw = makes ? made->data + packed->start : raw;
    ds_pack_elements(packed, to);
    packed->raw = raw;
    return DS_OK;
}

/* The elements of all packed weights lie one after the other in one block, each once, however many nodes have them:
 * large, it lies in large pages. */
static ds_status pack_weights(ds_plan *p, ds_arena *scratch)
{
    const size_t n = list_packed(p, NULL, NULL);
    ds_packed **all;
    uint32_t *same, *nodes;
    DS_PUSH(scratch, all, n);
    DS_PUSH(scratch, nodes, n);
    DS_PUSH(scratch, same, n);
    (void)list_packed(p, all, nodes);
    DS_TRY(find_same(all, n, same, scratch));
    for (size_t i = 0; i < n; i++) {
        const size_t n_bytes = same[i] == i ? ds_packed_elements_bytes(all[i]) : 0;
        DS_TRY(ds_budget_add(p, nodes[i], n_bytes));
        DS_CHECK(!__builtin_add_overflow(p->elements_bytes, n_bytes, &p->elements_bytes),
                 DS_NO_MEMORY, "the weights do not fit into memory");
    }
    DS_TRY(ds_allocate(&p->allocator, &p->elements, p->elements_bytes));
    const bool forgets = p->model->file && p->kernels->real[0].format != DS_FORMAT_RAW;
    made_weight made = {.data = NULL};
    size_t offset = 0, mapped = MOST_MAPPED; /* it was checked, and so read */
    for (size_t i = 0; i < n; i++) {
        const ds_packed *first = all[same[i]];
        if (first != all[i]) {
            all[i]->data = first->data;
            all[i]->scales = first->scales;
            all[i]->sums = first->sums;
            continue;
        }
        const size_t n_bytes = ds_packed_elements_bytes(first);
        if (forgets && mapped >= MOST_MAPPED) {
            ds_mapped_forget(p->model->file);
            mapped = 0;
        }
        mapped += n_bytes;
        DS_TRY(pack_made(p, nodes[i], all[i], (char *)p->elements + offset, &made, scratch));
        offset += n_bytes;
    }
    if (forgets)
        ds_mapped_forget(p->model->file); /* what is left to be read there is little */
    return DS_OK;
}

/* ---------------------------------------------------------------- giving back */
/* A use of a weight: of the graph as captured, or (slot not NULL) of the one that runs; packed: as that has it. */
typedef struct use {
    const void *data;
    ds_weight *weight;
    int i;           /* which of its node's weights it is */
    size_t rounding; /* how it is to be made, 0 where it is */
    const ds_op *op; /* without what is fused */
    size_t j;        /* its node */
    const void **slot;
    ds_packed *packed;
    size_t packed_bytes;
} use;

/* 0: they are of the same data; what is lent may be a part of another. */
static int compare_uses(const void *context, uint32_t a, uint32_t b)
{
    const use *x = (const use *)context + a, *y = (const use *)context + b;
    const uintptr_t pairs[][2] = {{(uintptr_t)x->data, (uintptr_t)y->data},
                                  {x->weight->n_bytes, y->weight->n_bytes},
                                  {x->rounding, y->rounding}};
    return compare_pairs(pairs, sizeof pairs / sizeof *pairs);
}

/* Whether this is all or a part of weight i of its operator, and can be unpacked. */
static bool restores(const ds_packed *packed, int i)
{
    return packed->weight == i && packed->format != DS_FORMAT_RAW &&
           packed->stored != DS_STORED_SPLIT;
}

/* Whether n_bytes of packed weights hold all elements of raw weight i, so many times. */
static bool holds(ds_packed *packed, size_t packed_bytes, const ds_weight *weight, int i,
                  size_t n_times)
{
    size_t found = 0;
    DS_EACH_PACKED(p, packed, packed_bytes)
    {
        if (restores(p, i))
            found += p->n_cols * p->depth * (p->element == DS_F32 ? sizeof(float) : sizeof(double));
    }
    return n_times > 0 && found == n_times * weight->n_bytes;
}

/* Adds the weights of one node that are there; plan: of the graph that runs, where the node is number j. */
static void list_uses(use **next, const ds_node *node, const ds_plan *plan, size_t j)
{
    size_t packed_bytes = 0;
    ds_packed *packed = plan ? first_packed(plan, j, &packed_bytes) : NULL;
    const ds_op *main = ds_fused_main(node->op);
    for (int i = 0; i < node->op->n_weights; i++) {
        ds_weight *weight = &node->weights[i];
        if (!weight->data)
            continue;
        use *u = (*next)++;
        *u = (use){.data = weight->data,
                   .weight = weight,
                   .i = i,
                   .op = main,
                   .j = j,
                   .rounding = rounding_of(weight, main, i),
                   .slot = plan ? &plan->nodes[j].weights[i] : NULL};
        const bool body = node->op->def->flags & DS_OP_BODY;
        if (i < main->n_weights &&
            holds(packed, packed_bytes, weight, i, body ? ds_scan_holders(node->op, i) : 1)) {
            u->packed = packed;
            u->packed_bytes = packed_bytes;
        }
    }
}

/* What all uses of a weight say of it. */
typedef struct use_counts {
    size_t n_captured, n_packed; /* the uses by the captured graph, and those that are packed */
    const use *packed;           /* the last of these, or NULL */
    bool owned, lent, unmade;
} use_counts;

static use_counts count_uses(const use *uses, const uint32_t *order, size_t n)
{
    use_counts c = {.unmade = uses[order[0]].weight->unmade};
    for (size_t i = 0; i < n; i++) {
        const use *u = &uses[order[i]];
        c.n_captured += !u->slot;
        c.n_packed += u->packed != NULL;
        c.owned |= !u->slot && !u->weight->borrowed;
        c.lent |= u->weight->lent;
        c.packed = u->packed ? u : c.packed;
    }
    return c;
}

/* Counts a weight, given all uses of it; gives it back where it is the plan's own, and each has it packed. */
static void replace(ds_plan *p, const use *uses, const uint32_t *order, size_t n)
{
    const use_counts c = count_uses(uses, order, n);
    void *data = uses[order[0]].weight->data;
    const size_t n_bytes = uses[order[0]].weight->n_bytes;
    if (c.n_captured < n) /* one that runs has it */
        p->raw_bytes += n_bytes;
    if (c.n_packed != c.n_captured)
        p->weight_bytes += c.n_captured < n ? n_bytes : 0;
    if (!(c.owned || c.lent || c.unmade) || c.n_packed != c.n_captured)
        return; /* a mapped file's takes no memory */
    p->replaced[p->n_replaced++] =
        (ds_replaced){c.packed->i, n_bytes, c.packed->packed, c.packed->packed_bytes};
    for (size_t i = 0; i < n; i++) {
        const use *u = &uses[order[i]];
        u->weight->replaced = p->n_replaced;
        u->weight->data = NULL;
        u->weight->lent = u->weight->unmade = false;
        if (u->slot)
            *u->slot = NULL;
    }
    if (c.owned && !c.lent)
        ds_release(&p->allocator, data, n_bytes);
}

/* Copies a weight that is lent or unmade, given all uses of it, unless each has it packed; marks the nodes that have
 * it. */
static ds_status keep(ds_plan *p, const use *uses, const uint32_t *order, size_t n, bool *moved)
{
    const use_counts c = count_uses(uses, order, n);
    const use *const first = &uses[order[0]];
    const ds_weight *const weight = first->weight;
    if (!(c.lent || c.unmade) || c.n_packed == c.n_captured)
        return DS_OK;
    void *data;
    for (size_t i = 0; i < n && (!c.lent || weight->narrow.data); i++)
        if (uses[order[i]].slot) {
            DS_TRY(ds_budget_add(p, uses[order[i]].j, weight->n_bytes));
            break;
        }
    DS_TRY(ds_allocate(&p->allocator, &data, weight->n_bytes));
    DS_TRY_ELSE(ds_weight_make(&p->allocator, weight, first->op, first->i, data),
                ds_release(&p->allocator, data, weight->n_bytes));
    for (size_t i = 0, owners = 0; i < n; i++) {
        const use *u = &uses[order[i]];
        u->weight->data = data;
        u->weight->lent = u->weight->unmade = false;
        if (u->slot) {
            *u->slot = data;
            moved[u->j] = true;
        } else
            u->weight->borrowed = owners++ > 0;
    }
    return DS_OK;
}

/* All uses of all weights, those of the same data one behind the other in this order. */
typedef struct use_list {
    use *uses;
    uint32_t *order;
    size_t n;
} use_list;

static ds_status list_all(use_list *list, const ds_plan *p, ds_arena *arena)
{
    const size_t most = count_weights(p->model) + count_weights(p->graph);
    DS_PUSH(arena, list->uses, most);
    DS_PUSH(arena, list->order, most);
    use *end = list->uses;
    for (size_t j = 0; j < p->model->n_nodes; j++)
        list_uses(&end, &p->model->nodes[j], NULL, j);
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        list_uses(&end, &p->graph->nodes[j], p, j);
    list->n = (size_t)(end - list->uses);
    for (size_t i = 0; i < list->n; i++)
        list->order[i] = (uint32_t)i;
    ds_sort_indices(list->order, list->n, compare_uses, list->uses);
    return DS_OK;
}

/* How many uses, from number i on, are of the same data. */
static size_t count_same(const use_list *list, size_t i)
{
    size_t n = 1;
    while (i + n < list->n && compare_uses(list->uses, list->order[i], list->order[i + n]) == 0)
        n++;
    return n;
}

/* What stays of weights that are lent becomes the plan's own; nodes that refer to it are prepared again. */
static ds_status keep_weights(ds_plan *p, ds_arena *scratch)
{
    use_list list;
    bool *moved;
    DS_PUSH_ZEROED(scratch, moved, p->graph->n_nodes);
    DS_TRY(list_all(&list, p, scratch));
    for (size_t i = 0, n; i < list.n; i += n) {
        n = count_same(&list, i);
        DS_TRY(keep(p, list.uses, list.order + i, n, moved));
    }
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        if (moved[j] && p->nodes[j].prepared)
            ds_op_prepare(p->graph->nodes[j].op, p->nodes[j].prepared, p->nodes[j].weights,
                          &p->kernels->real[0]);
    return DS_OK;
}

static ds_status replace_weights(ds_plan *p, ds_arena *scratch)
{
    use_list list;
    DS_PUSH(&p->arena, p->replaced, count_weights(p->model));
    DS_TRY(list_all(&list, p, scratch));
    p->weight_bytes = p->prepared_bytes + p->elements_bytes;
    for (size_t i = 0, n; i < list.n; i += n) {
        n = count_same(&list, i);
        replace(p, list.uses, list.order + i, n);
    }
    return DS_OK;
}

ds_status ds_weights_prepare(ds_plan *plan, ds_arena *scratch)
{
    DS_TRY(check_tiles(plan));
    DS_TRY(list_weights(plan));
    DS_TRY(prepare_nodes(plan));
    DS_TRY(keep_weights(plan, scratch));
    DS_TRY(pack_weights(plan, scratch));
    DS_TRY(replace_weights(plan, scratch));
    if (plan->model->file && !ds_mapped_is_mapping(plan->model->file)) {
        ds_mapped_release(plan->model->file); /* it would stay as long as the least weight in it */
        plan->model->file = NULL;
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- and back */
void ds_weights_unpack(const ds_plan *plan, size_t replaced, void *to)
{
    const ds_replaced *const r = &plan->replaced[replaced - 1];
    DS_EACH_PACKED(packed, r->packed, r->packed_bytes)
    {
        if (restores(packed, r->weight))
            ds_unpack(packed, (char *)to + packed->start);
    }
}
