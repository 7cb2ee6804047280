/* ops/scan.h: what the files of loops over frames share: bodies, and frames that go through them together. */
#pragma once
#include "base/arena.h"
#include "codec/json.h"
#include "ops/back.h"

/* When a node runs: BEFORE what is carried is known, for many frames at once; in each STEP; or AFTER the steps, for
 * many frames at once, since nothing that is carried needs it. */
typedef enum ds_scan_phase { DS_SCAN_BEFORE, DS_SCAN_STEP, DS_SCAN_AFTER } ds_scan_phase;

typedef struct ds_scan_node {
    ds_op *op;
    int inputs[DS_MAX_INPUTS];
    int first_output;
    int *weights; /* [op->n_weights], numbers of the operator's own; -1 where absent */
    ds_scan_phase phase;
    bool chained;        /* a chain computes it */
    bool ends_gradients; /* what it is made of has none from here */
    int ahead;           /* the value of what is made ahead of its steps; -1: nothing is */
} ds_scan_node;

typedef struct ds_scan_body {
    ds_scan_node *nodes;
    size_t n_nodes, n_values, first_node;
    ds_signature *values; /* [n_values] */
    int carried[DS_MAX_CARRIED], outputs[DS_MAX_OUTPUTS];
    bool *hidden;                              /* [n_values]: only its chain sees it */
    struct ds_scan_chain *chain;               /* NULL: its steps run node by node */
    size_t scratch_per_call, scratch_per_slot; /* the most that a node takes */
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
    size_t *
        depths; /* [op->n_weights]: the elements of a channel of those that may be stored narrow; 0: not */
    size_t more_slots, more_back_slots; /* than there are rows, in forward and in backward */
} ds_scan;

/* One frame of one row. */
typedef struct ds_scan_slot {
    size_t row;
    int64_t position;
} ds_scan_slot;

/* Frames that go through a body together. Those of one step are a group: frames of different rows, which depend on none
 * of each other; groups follow each other as their frames do. Of a body with a chain a group is some frames of one row. */
typedef struct ds_scan_work {
    const ds_op *op;
    const ds_run *run;
    const ds_scan *s;
    const ds_scan_body *body;
    ds_scan_slot *slots; /* [n_slots] */
    size_t *groups;      /* [n_groups + 1]: the first slot of each, and n_slots */
    size_t n_slots, n_groups, most_slots;
    char **values;         /* of the body: [n_slots] of each of them; NULL where it is hidden */
    char *data;            /* behind which values lie, and then what nodes take */
    const char **prepared; /* of all nodes */
} ds_scan_work;

/* How many nodes hold weight i of the operator packed; 0 where something reads it raw. */
size_t ds_scan_holders(const ds_op *op, int i);
/* Fills where each node finds what it has prepared. */
void ds_scan_places(const ds_op *op, const ds_real_kernels *k, const void *prepared,
                    const char **places);
/* Takes what a walk holds of slots, groups, values and what nodes have prepared, and fills the latter; returns how many
 * values a body has at most. */
size_t ds_scan_rooms(ds_scan_work *w, ds_room *room);
/* Takes a group of slots: of each row with so many of body b's frames its step-th one, or that from the last one on.
 * Returns whether there was any. */
bool ds_scan_take_step(ds_scan_work *w, size_t b, int64_t step, bool last_first);
/* Points `places` at room for all slots of each value, from `at` on; returns what is behind them. */
char *ds_scan_lay_out(const ds_scan_work *w, char **places, char *at, bool hidden);
/* Fills the inputs' values. */
void ds_scan_load(const ds_scan_work *w);
/* A node as an operator's run: of n slots from `first` on, as frames that look at nobody else. The arrays belong to
 * the caller. */
typedef struct ds_scan_call {
    ds_window in[DS_MAX_INPUTS];
    ds_counts count[DS_MAX_INPUTS];
    ds_target out[DS_MAX_OUTPUTS];
    const void *weights[DS_MAX_WEIGHTS];
    ds_run run;
} ds_scan_call;
void ds_scan_call_of(const ds_scan_work *w, const ds_scan_node *node, size_t first, size_t n,
                     void *scratch, ds_scan_call *call);
/* What a row carried before a frame, as forward left it for backward. */
char *ds_scan_left(const ds_scan_work *w, const ds_scan_slot *slot);
/* What is carried is set to what it begins as. */
void ds_scan_begin(const ds_scan_work *w, size_t r);

/* Bytes that a block takes beside its slots; n_values: of the largest body. */
size_t ds_scan_own_bytes(const ds_scan *s, size_t n_values, size_t more_slots);
void ds_scan_set_sizes(ds_op *op);
void ds_scan_forward(const ds_op *op, const ds_run *run);
void ds_scan_set_back_sizes(ds_op *op);
void ds_scan_backward(const ds_op *op, const ds_back *b);

/* Finds out whether what a body's steps do is a chain, and takes what can go with it. Errors: DS_NO_MEMORY. */
ds_status ds_scan_make_chain(const ds_op *op, ds_scan *s, ds_scan_body *body);
size_t ds_scan_chain_bytes(const ds_scan_body *body);
/* Runs all steps of the slots; room: ds_scan_chain_bytes. */
void ds_scan_run_chain(const ds_scan_work *w, void *room);
