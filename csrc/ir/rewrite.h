/* ir/rewrite.h: rewrites that keep every output bit: syncs that never hold their input back are
 * removed, and so is what no output needs. Node ids and edge numbers stay those of the original. */
#ifndef DS_IR_REWRITE_H
#define DS_IR_REWRITE_H
#include "ir/analyse.h"

/* Marks the nodes on whose values no output depends (only their lengths count, if anything does): they are
 * counted and may refuse a stream, but nothing is kept for them, and they never run. To be called before
 * the graph is analysed or shared: what a stream remembers must follow from the original alone. */
void ds_find_silent(ds_graph *graph);
/* Rewrites a shared copy (ds_graph_share), given the original's analysis, which becomes the copy's: its
 * edges' facts. DS_NO_MEMORY, upon which both are as before. */
ds_status ds_rewrite(ds_graph *graph, ds_analysis *analysis);

#endif
