/* ops/scan.h: what the two files of loops over frames share: bodies, and a step of them. */
#ifndef DS_OPS_SCAN_H
#define DS_OPS_SCAN_H
#include "base/arena.h"
#include "codec/json.h"
#include "ops/op.h"

typedef struct ds_scan_node {
    ds_op *op;
    int inputs[DS_MAX_INPUTS];
    int first_output;
    int *weights; /* [op->n_weights], numbers of the operator's own; -1 where absent */
} ds_scan_node;

typedef struct ds_scan_body {
    ds_scan_node *nodes;
    size_t n_nodes, n_values, first_node;
    ds_signature *values; /* [n_values] */
    int carried[DS_MAX_CARRIED], outputs[DS_MAX_OUTPUTS];
    size_t scratch_per_call, scratch_per_row; /* the most that a node takes */
} ds_scan_body;

/* What an instance owns. */
typedef struct ds_scan {
    ds_arena arena;
    ds_json *json;
    char *text;
    ds_scan_body *bodies;
    size_t n_bodies;
    const ds_scan_node **nodes; /* of all bodies */
    size_t n_nodes;
} ds_scan;

typedef struct ds_scan_work {
    const ds_op *op;
    const ds_run *run;
    const ds_scan *s;
    size_t *rows;          /* those that take part in a step */
    char **values;         /* of the body at hand: one frame of each of them */
    char *data;            /* behind which values lie, and then what nodes take */
    const char **prepared; /* of all nodes */
} ds_scan_work;

/* Fills where each node finds what it has prepared. */
void ds_scan_places(const ds_op *op, const ds_real_kernels *k, const void *prepared,
                    const char **places);
/* Lists the rows whose frame m0 + step is body b's; returns how many. */
size_t ds_scan_rows(const ds_scan_work *w, size_t b, int64_t step);
/* Points `places` at one frame of each value of a body for n rows, from `at` on; returns what is behind them. */
char *ds_scan_lay_out(const ds_scan_body *body, char **places, char *at, size_t n);
/* Fills the inputs' values, of frame m0 + step. */
void ds_scan_load(const ds_scan_work *w, size_t n, int64_t step);
/* A node as an operator's run: of n frames, which look at nobody else. The arrays belong to the caller. */
typedef struct ds_scan_call {
    ds_window in[DS_MAX_INPUTS];
    ds_counts count[DS_MAX_INPUTS];
    ds_target out[DS_MAX_OUTPUTS];
    const void *weights[DS_MAX_WEIGHTS];
    ds_run run;
} ds_scan_call;
void ds_scan_call_of(const ds_scan_work *w, const ds_scan_node *node, size_t n, void *scratch,
                     const void *prepared, ds_scan_call *call);
/* What row r carried before frame m0 + step, as forward left it for backward. */
void *ds_scan_left(const ds_op *op, const ds_run *run, size_t r, int64_t step);

void ds_scan_set_back_sizes(ds_op *op);
void ds_scan_backward(const ds_op *op, const ds_back *b);

#endif
