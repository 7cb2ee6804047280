/* ops/move.h: operators that only move elements say where those of their output come from; one forward serves all.
 *
 * Such an operator has a function that lists pieces. A piece covers output frames [m0, m1) and, within each, a box
 * of elements:
 *
 *     y[m][to + i_0 to_0 + i_1 to_1 + ...] = x[from + floor(m / hold) step + i_0 from_0 + i_1 from_1 + ...]
 *
 * for all i_d < size_d, where x is all of an input's elements from its first frame on, one after the other; or a
 * constant. Pieces are absolute: they know neither chunks nor rows. Together they cover every element of the
 * output exactly once, so that read the other way, x[..] += y[..] summed over all pieces, they give the
 * gradient. */
#pragma once
#include "ops/framewise.h"

enum {
    DS_MOVE_FILL = -1 /* piece.value */,
    DS_MOVE_WEIGHT = -2 /* weight 0, whose frames are its rows */
};

typedef struct ds_piece {
    int input; /* or one of the above */
    double value;
    int64_t m0, m1;
    int64_t to, from, step, hold; /* hold >= 1 */
    int rank;
    struct {
        int64_t size, to, from;
    } axis[DS_MAX_RANK + 1]; /* outermost first */
} ds_piece;

/* A box of elements that are copied, in bytes between positions; add axes outermost first to one of no rank. */
typedef struct ds_box {
    int rank;
    size_t element;
    struct ds_extent {
        int64_t size, to, from;
    } axis[DS_MAX_RANK + 3]; /* frames, their repeats, a piece's own */
} ds_box;

/* Axes of one position are dropped, axes that continue each other joined; size >= 1. */
void ds_box_add(ds_box *box, int64_t size, int64_t to, int64_t from);
/* y is never read, x never written. */
void ds_box_copy(const ds_box *box, void *y, const void *x);

/* What a list of pieces is made for; the lists of most operators need not know. */
typedef struct ds_move {
    const ds_op *op;
    const ds_run *run;
    const ds_back *back; /* pieces are read the other way, slopes added; NULL: they are copied */
    size_t row, n_rows;  /* of the run */
    int64_t m0, m1;      /* what is wanted of them, at most */
    int64_t total;       /* DS_MOVE_ENDS: the stream's length, DS_NEVER while it goes on */
    int64_t element, n_in, n_out; /* bytes; elements of a frame of input 0 and of the output */
} ds_move;

enum {
    DS_MOVE_ENDS = 1,  /* the pieces depend on the stream's length */
    DS_MOVE_WITHIN = 2 /* a frame has several pieces */
};

/* Forward and backward of an operator that has pieces, and how its definition says which. */
void ds_move_forward(const ds_op *op, const ds_run *run);
void ds_move_backward(const ds_op *op, const ds_back *b);
#define DS_MOVED(list, how) \
    .pieces = list, .moves = how, .forward = ds_move_forward, .backward = ds_move_backward

/* Adds a piece to the list. */
void ds_move_piece(const ds_move *move, const ds_piece *piece);
/* y[m] = frame from + m step of an input (or of DS_MOVE_WEIGHT), for m in [m0, m1). */
void ds_move_frames(const ds_move *move, int input, int64_t m0, int64_t m1, int64_t from,
                    int64_t step);
/* y[m] = value, for m in [m0, m1). */
void ds_move_fill(const ds_move *move, int64_t m0, int64_t m1, double value);

/* The piece of all frames whose box is n positions of a feature axis from position `to` on; in the input they
 * stand at from, from + step, ... of that axis. */
ds_piece ds_piece_along(const ds_op *op, int axis, int64_t to, int64_t n, int input, int64_t from,
                        int64_t step);

/* Whether y may hold the value; writes it as an element (of 8 bytes at most). */
bool ds_move_encode(ds_dtype dtype, double value, void *element);
/* DS_ARGUMENT unless elements of input 0 may hold attribute `attr`. */
ds_status ds_move_require_value(const ds_op *op, int attr);
/* Fills n_bytes, a multiple of pattern_bytes, with copies of the pattern, which lies elsewhere. */
void ds_move_repeat(void *to, size_t n_bytes, const void *pattern, size_t pattern_bytes);

/* The pieces of those whose elements are input 0's, in its order; and of those all whose frames are its first. */
void ds_same_pieces(const ds_op *op, const ds_move *move);
void ds_first_pieces(const ds_op *op, const ds_move *move);
