/* exec/weights.c: packs weights, gives back what they replace, and unpacks it for whoever must see it. */
#include "exec/weights.h"

#include <string.h>

#include "base/alloc.h"
#include "codec/sort.h"
#include "ops/fused.h"

static int compare_weights(const void *context, uint32_t a, uint32_t b)
{
    const ds_weight *const *weights = context;
    const uintptr_t x = (uintptr_t)weights[a]->data, y = (uintptr_t)weights[b]->data;
    return x < y ? -1 : x > y;
}

/* Adds up the weights, each once: nodes share them where a module is called twice. items: [n]. */
static void sum_weights(ds_plan *p, const ds_weight **items, uint32_t *order)
{
    size_t n = 0;
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        for (int i = 0; i < p->graph->nodes[j].op->n_weights; i++, n++) {
            items[n] = &p->graph->nodes[j].weights[i];
            order[n] = (uint32_t)n;
        }
    ds_sort_indices(order, n, compare_weights, items);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || items[order[i]]->data != items[order[i - 1]]->data)
            p->raw_bytes += items[order[i]]->n_bytes;
}

static ds_status list_weights(ds_plan *p)
{
    size_t n = 0;
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const ds_node *node = &p->graph->nodes[j];
        const ds_op *op = node->op;
        void *weights;
        DS_TRY(ds_allocate_array(&p->allocator, &weights, (size_t)op->n_weights,
                                 sizeof(const void *)));
        p->nodes[j].weights = weights;
        for (int i = 0; i < op->n_weights; i++, n++)
            p->nodes[j].weights[i] = node->weights[i].data;
    }
    void *items;
    const size_t n_bytes = n * (sizeof(ds_weight *) + sizeof(uint32_t));
    DS_TRY(ds_allocate(&p->allocator, &items, n_bytes));
    sum_weights(p, items, (uint32_t *)((const ds_weight **)items + n));
    ds_release(&p->allocator, items, n_bytes);
    p->weight_bytes = p->raw_bytes;
    return DS_OK;
}

/* The prepared weights lie one after the other in one block: large, it lies in large pages. */
static ds_status pack_weights(ds_plan *p)
{
    const ds_real_kernels *const k = &p->kernels->real[0];
    for (size_t j = 0; j < p->graph->n_nodes; j++)
        DS_CHECK(!__builtin_add_overflow(p->prepared_bytes,
                                         ds_aligned(ds_op_prepared_bytes(p->graph->nodes[j].op, k)),
                                         &p->prepared_bytes),
                 DS_NO_MEMORY, "the weights do not fit into memory");
    DS_TRY(ds_allocate(&p->allocator, &p->prepared, p->prepared_bytes));
    size_t offset = 0;
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const ds_op *op = p->graph->nodes[j].op;
        ds_node_plan *plan = &p->nodes[j];
        const size_t n_bytes = ds_op_prepared_bytes(op, k);
        if (!n_bytes)
            continue;
        plan->prepared = (char *)p->prepared + offset;
        op->def->prepare(op, plan->prepared, plan->weights, k);
        offset += ds_aligned(n_bytes);
    }
    p->weight_bytes += p->prepared_bytes;
    if (p->model->file && k->format != DS_FORMAT_RAW)
        ds_mapped_forget(p->model->file); /* what is left to be read there is little */
    return DS_OK;
}

/* ---------------------------------------------------------------- giving back */
/* A use of a weight: of the graph as captured, or (slot not NULL) of one that runs and has it packed. */
typedef struct use {
    const void *data;
    ds_weight *weight;
    const void **slot;
    const ds_packed *packed;
    size_t packed_bytes;
} use;

static int compare_uses(const void *context, uint32_t a, uint32_t b)
{
    const use *uses = context;
    const uintptr_t x = (uintptr_t)uses[a].data, y = (uintptr_t)uses[b].data;
    return x < y ? -1 : x > y;
}

/* Whether a packed weight came from these bytes; the next one of its operator. */
static bool came_from(const ds_packed *packed, const void *data, size_t n_bytes)
{
    const uintptr_t at = (uintptr_t)packed->raw, first = (uintptr_t)data;
    return packed->format != DS_FORMAT_RAW && at >= first && at - first < n_bytes;
}

static const ds_packed *next_packed(const ds_packed *packed)
{
    return (const ds_packed *)(const void *)((const char *)packed + packed->n_bytes);
}

/* Whether n_bytes of packed weights hold all elements of a raw one. */
static bool holds(const ds_packed *packed, size_t packed_bytes, const ds_weight *weight)
{
    size_t found = 0;
    for (const ds_packed *p = packed;
         (size_t)((const char *)p - (const char *)packed) < packed_bytes; p = next_packed(p))
        if (came_from(p, weight->data, weight->n_bytes))
            found += p->n_cols * p->depth * (p->element == DS_F32 ? sizeof(float) : sizeof(double));
    return found == weight->n_bytes;
}

static size_t list_uses(ds_plan *p, use *uses)
{
    size_t n = 0;
    for (size_t j = 0; j < p->model->n_nodes; j++)
        for (int i = 0; i < p->model->nodes[j].op->n_weights; i++) {
            ds_weight *weight = &p->model->nodes[j].weights[i];
            if (weight->data)
                uses[n++] = (use){.data = weight->data, .weight = weight};
        }
    for (size_t j = 0; j < p->graph->n_nodes; j++) {
        const ds_node *node = &p->graph->nodes[j];
        const ds_op *main = ds_fused_main(node->op);
        const ds_packed *packed = p->nodes[j].prepared;
        if (!packed || !(main->def->flags & DS_OP_PACKS))
            continue;
        const size_t n_bytes = ds_op_prepared_bytes(main, &p->kernels->real[0]);
        for (int i = 0; i < main->n_weights; i++)
            if (node->weights[i].data && holds(packed, n_bytes, &node->weights[i]))
                uses[n++] = (use){node->weights[i].data, &node->weights[i], &p->nodes[j].weights[i],
                                  packed, n_bytes};
    }
    return n;
}

/* Gives a weight back, given all uses of it, where each has it packed. */
static void replace(ds_plan *p, const use *uses, const uint32_t *order, size_t n)
{
    size_t n_packed = 0, n_bytes = 0;
    const use *packed = NULL;
    bool owned = false;
    for (size_t i = 0; i < n; i++) {
        const use *u = &uses[order[i]];
        n_bytes = u->weight->n_bytes;
        owned |= !u->slot && !u->weight->borrowed;
        if (u->slot) {
            packed = u;
            n_packed++;
        }
    }
    if (!owned || 2 * n_packed != n)
        return;
    void *data = uses[order[0]].weight->data;
    p->replaced[p->n_replaced++] =
        (ds_replaced){data, n_bytes, packed->packed, packed->packed_bytes};
    for (size_t i = 0; i < n; i++) {
        const use *u = &uses[order[i]];
        u->weight->was = data;
        u->weight->data = NULL;
        if (u->slot)
            *u->slot = NULL;
    }
    ds_release(&p->allocator, data, n_bytes);
    p->weight_bytes -= n_bytes;
}

static ds_status replace_weights(ds_plan *p)
{
    size_t most = 0;
    for (size_t j = 0; j < p->model->n_nodes; j++)
        most += (size_t)p->model->nodes[j].op->n_weights;
    const size_t n_bytes = 2 * most * (sizeof(use) + sizeof(uint32_t));
    void *memory, *replaced;
    DS_TRY(ds_allocate_array(&p->allocator, &replaced, most, sizeof *p->replaced));
    p->replaced = replaced;
    p->most_replaced = most;
    DS_TRY(ds_allocate(&p->allocator, &memory, n_bytes));
    use *uses = memory;
    uint32_t *order = (uint32_t *)(void *)(uses + 2 * most);
    const size_t n = list_uses(p, uses);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    ds_sort_indices(order, n, compare_uses, uses);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && uses[order[end]].data == uses[order[i]].data; end++)
            ;
        replace(p, uses, order + i, end - i);
    }
    ds_release(&p->allocator, memory, n_bytes);
    return DS_OK;
}

ds_status ds_weights_prepare(ds_plan *plan)
{
    DS_TRY(list_weights(plan));
    DS_TRY(pack_weights(plan));
    return replace_weights(plan);
}

void ds_weights_release(ds_plan *plan)
{
    const ds_allocator *a = &plan->allocator;
    for (size_t j = 0; plan->nodes && j < plan->graph->n_nodes; j++) {
        const ds_op *op = plan->graph->nodes[j].op;
        ds_release(a, plan->nodes[j].weights, (size_t)op->n_weights * sizeof(const void *));
    }
    ds_release(a, plan->replaced, plan->most_replaced * sizeof *plan->replaced);
    ds_release(a, plan->prepared, plan->prepared_bytes);
}

/* ---------------------------------------------------------------- and back */
static ds_status unpack(const ds_plan *p, const ds_replaced *r, void **data)
{
    DS_TRY(ds_allocate(&p->allocator, data, r->n_bytes));
    for (const ds_packed *packed = r->packed;
         (size_t)((const char *)packed - (const char *)r->packed) < r->packed_bytes;
         packed = next_packed(packed))
        if (came_from(packed, r->was, r->n_bytes))
            ds_unpack(packed, (char *)*data + ((uintptr_t)packed->raw - (uintptr_t)r->was));
    return DS_OK;
}

/* The place among those replaced, which ascend. */
static size_t find_replaced(const ds_plan *p, const void *was)
{
    size_t low = 0, high = p->n_replaced;
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        if ((uintptr_t)p->replaced[middle].was <= (uintptr_t)was)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static ds_status restore(ds_restored *r)
{
    const ds_plan *p = r->plan;
    void *memory;
    DS_TRY(ds_allocate_zeroed(&p->allocator, &memory, p->n_replaced * sizeof(void *)));
    r->data = memory;
    for (size_t i = 0; i < p->n_replaced; i++)
        DS_TRY(unpack(p, &p->replaced[i], &r->data[i]));
    DS_TRY(ds_allocate_array(&p->allocator, &memory, r->n_weights, sizeof(ds_weight)));
    r->weights = memory;
    ds_weight *to = r->weights;
    for (size_t j = 0; j < r->graph->n_nodes; j++) {
        ds_node *node = &r->graph->nodes[j];
        for (int i = 0; i < node->op->n_weights; i++) {
            to[i] = node->weights[i];
            if (to[i].was)
                to[i].data = r->data[find_replaced(p, to[i].was)];
        }
        node->weights = to;
        to += node->op->n_weights;
    }
    return DS_OK;
}

ds_status ds_weights_restore(ds_restored *restored, const ds_plan *plan, const ds_graph *graph)
{
    *restored = (ds_restored){.plan = plan};
    DS_TRY(ds_graph_share(&restored->graph, graph));
    for (size_t j = 0; j < graph->n_nodes; j++)
        restored->n_weights += (size_t)graph->nodes[j].op->n_weights;
    const ds_status status = restore(restored);
    if (status != DS_OK)
        ds_weights_free(restored);
    return status;
}

void ds_weights_free(ds_restored *restored)
{
    const ds_plan *p = restored->plan;
    for (size_t i = 0; restored->data && i < p->n_replaced; i++)
        ds_release(&p->allocator, restored->data[i], p->replaced[i].n_bytes);
    ds_release(&p->allocator, restored->data, p->n_replaced * sizeof(void *));
    ds_release(&p->allocator, restored->weights, restored->n_weights * sizeof(ds_weight));
    ds_graph_destroy(restored->graph);
}
