/* ops/scan_chain.h: the steps of a chain, for the file that makes and runs them and the one that joins them. */
#pragma once
#include "ops/scan.h"

enum {
    CHAIN_NODES = 32,
    CHAIN_BYTES = 8192 /* of a tile */,
    CHAIN_WIDE = 256 /* elements of a frame whose other nodes join */,
    CHAIN_SUMS = 64
};

typedef enum chain_kind {
    CHAIN_SPREAD,
    CHAIN_UNARY,
    CHAIN_BINARY,
    CHAIN_SUM,
    CHAIN_RECURRENCE,
    CHAIN_GONE /* a recurrence does it */
} chain_kind;

/* Where a tile of a value is: in a room that serves others later, in one that is its own, among the slots, among what
 * is carried, in a weight. */
typedef enum chain_home {
    CHAIN_ROOM,
    CHAIN_KEPT,
    CHAIN_SLOTS,
    CHAIN_HELD,
    CHAIN_WEIGHT,
    CHAIN_ONE /* the number 1 */
} chain_home;

typedef struct chain_place {
    chain_home home;
    int number;  /* of the room, the value, the carried array or the weight */
    size_t step; /* 0: of a frame there is one element; the tile repeats it */
} chain_place;

/* Of rows: that of row r at i is r * row + i * at.step elements behind the place. */
typedef struct chain_factor {
    chain_place at;
    size_t row;
} chain_factor;

/* A frame of a linear recurrence: h = a before + b, of products of two, and sums of h c over rows. */
typedef struct chain_recurrence {
    size_t n; /* of a row; 0: a tile is one */
    chain_factor a[2], b[2], c;
    chain_place before, h, sums;
    bool exponential, summed;
} chain_recurrence;

typedef struct chain_step {
    chain_kind kind;
    int function;
    double p[3];
    chain_place y, x[2];
    int rank; /* of what is spread: sizes and the source's strides */
    int64_t size[DS_MAX_RANK], stride[DS_MAX_RANK];
    chain_recurrence recurrence;
} chain_step;

typedef struct ds_scan_chain {
    chain_step *once, *steps; /* what is made for a tile, and for each of its frames */
    chain_place *home;        /* [n_values] */
    chain_place
        held[DS_MAX_CARRIED];   /* what goes on from frame to frame, where it isn't there yet */
    int moved[DS_MAX_CARRIED];  /* to which carried arrays */
    bool shown[DS_MAX_CARRIED]; /* nodes behind the chain read what was carried in */
    int n_once, n_steps, n_moved, n_rooms;
    bool cyclic; /* what goes on is read from what is carried */
    size_t n, tile, element, n_sum;
} ds_scan_chain;

/* Joins the steps of linear recurrences, h = a h + b, and what reads the sums of h c, to one step each. */
void ds_scan_join_recurrences(ds_scan_chain *chain);
