/* exec/weights.h: the weights of a plan: packed as its kernels want them, and raw where nothing replaces them.
 *
 * A raw weight that is the plan's own, and of which all users have a packed one, is given back once it has been
 * packed. What must see weights as they were captured (files, exports) unpacks them one by one. */
#pragma once
#include "exec/plan.h"

/* Lists every node's raw weights, packs them, and gives back what has been replaced. After the fingerprint has been
 * computed. Errors: DS_NO_MEMORY. */
ds_status ds_weights_prepare(ds_plan *plan, ds_arena *scratch);
/* Fills `to` with the raw weight that is number `replaced` (ds_weight) of those that were given back. */
void ds_weights_unpack(const ds_plan *plan, size_t replaced, void *to);
