/* exec/weights.h: the weights of a plan: packed as its kernels want them, and raw where nothing replaces them.
 *
 * A raw weight that is the plan's own, and of which all users have a packed one, is given back once it has been
 * packed. What must see weights as they were captured (files, exports) gets them unpacked, for a while. */
#pragma once
#include "exec/plan.h"

/* Lists every node's raw weights, packs them, and gives back what has been replaced. After the fingerprint has been
 * computed. Errors: DS_NO_MEMORY. */
ds_status ds_weights_prepare(ds_plan *plan, ds_arena *scratch);
/* Fills `to` with the raw weight that is number `replaced` (ds_weight) of those that were given back. */
void ds_weights_unpack(const ds_plan *plan, size_t replaced, void *to);
/* A graph of the plan's whose weights are all there. */
typedef struct ds_restored {
    ds_graph *graph;
    ds_arena arena; /* what was unpacked */
} ds_restored;

/* graph: plan->model or plan->plain, which it shares operators and names with. Errors: DS_NO_MEMORY. */
ds_status ds_weights_restore(ds_restored *restored, const ds_plan *plan, const ds_graph *graph);
void ds_weights_free(ds_restored *restored);
