/* ir/rewrite.h: rewrites that keep every output bit. Node ids and edge numbers stay those of the original. */
#pragma once
#include "ir/analyse.h"

/* Marks the nodes on whose values no output depends (only their lengths count, if anything does): they are
 * counted and may refuse a stream, but nothing is kept for them, and they never run. To be called before
 * the graph is analysed or shared: what a stream remembers must follow from the original alone. */
void ds_find_silent(ds_graph *graph);
/* Takes out syncs that never hold their input back, and what no output needs. Rewrites a shared copy
 * (ds_graph_share), given the original's analysis, which becomes the copy's: its edges' facts. DS_NO_MEMORY,
 * upon which both are as before. */
ds_status ds_rewrite(ds_graph *graph, ds_analysis *analysis);
/* Products take the operators that follow them as their epilogues. Fused are chains of edges with one reader
 * that keep nothing: what reads them takes frame by frame. The fused node stands where the last of the chain
 * stood and has its output; the edges between have no producer any more. Rewrites a shared copy that needs no
 * more of its syncs removed. The nodes that it makes are the copy's own. DS_NO_MEMORY, the graph as it was but
 * for what has been fused. */
ds_status ds_fuse(ds_graph *graph);
