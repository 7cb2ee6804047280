/* ir/fuse.h: products take the operators that follow them as their epilogues.
 *
 * Fused are chains of edges with one reader that keep nothing: what reads them takes frame by frame. The
 * fused node stands where the last of the chain stood and has its output; the edges between have no
 * producer any more. Every output bit stays. */
#ifndef DS_IR_FUSE_H
#define DS_IR_FUSE_H
#include "ir/graph.h"

/* Rewrites a shared copy (ds_graph_share) that needs no more of its syncs removed. The nodes that it makes
 * are the copy's own. Errors: DS_NO_MEMORY, the graph as it was but for what has been fused. */
ds_status ds_fuse(ds_graph *graph);
/* Releases what such a node owns. */
void ds_fuse_release(const ds_allocator *allocator, ds_node *node);

#endif
