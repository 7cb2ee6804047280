/* ir/rewrite.h: rewrites that keep every output bit: syncs that never hold their input back are
 * removed, and so is what no output needs. Node ids and edge numbers stay those of the original. */
#ifndef DS_IR_REWRITE_H
#define DS_IR_REWRITE_H
#include "ir/analyse.h"

/* Rewrites a shared copy (ds_graph_share), given the original's analysis. */
void ds_rewrite(ds_graph *graph, const ds_analysis *analysis);

#endif
