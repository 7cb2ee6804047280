/* ops/recurrence.h: what the two files of the recurrent cells share: sizes, and the places of weights. */
#pragma once
#include "ops/op.h"

/* Members of the family: along the stream; DS_SINGLE further on the cells' own; as many again within frames. */
enum { DS_LSTM, DS_GRU, DS_RNN, DS_SINGLE };
enum { DS_WEIGHT_IH, DS_WEIGHT_HH, DS_BIAS_IH, DS_BIAS_HH, DS_WEIGHT_HR }; /* of one cell */
enum { DS_RECURRENCE_X, DS_RECURRENCE_H }; /* inputs; a state's parts begin at H */
enum { DS_RECURRENCE_Y, DS_RECURRENCE_H_N };

/* One layer in one direction is a cell; cells are numbered layer * directions + direction. */
typedef struct ds_recurrence {
    int kind;                         /* DS_LSTM, DS_GRU, DS_RNN */
    bool single, within, bias, relu;  /* single: frames by themselves */
    size_t layers, directions, cells; /* 1 each of a single one */
    size_t vectors, steps, lanes;     /* in a frame: lanes of as many steps */
    size_t in, hidden, gates;         /* gates: of all, hidden of each */
    size_t projection;                /* 0: none */
    size_t out;                       /* features of h */
    int n_states;                     /* 1: h; 2: h and c */
    size_t element;
} ds_recurrence;

/* A sequence of one call. */
typedef struct ds_lane {
    void *h, *c;     /* [P] and [H]; c NULL where there is none */
    size_t first, n; /* its first vector among those of the call, and how many */
    char *y;         /* where its first vector of the last layer goes */
} ds_lane;

ds_recurrence ds_recurrence_of(const ds_op *op);

/* Inputs of a layer's cells. */
static inline size_t ds_recurrence_inputs(const ds_recurrence *s, size_t layer)
{
    return layer == 0 ? s->in : s->directions * s->out;
}

/* Bytes of one cell's h (0) or c (1). */
static inline size_t ds_recurrence_state_bytes(const ds_recurrence *s, int state)
{
    return (state == 0 ? s->out : s->hidden) * s->element;
}

/* Whether states are neither carried nor outputs. */
static inline bool ds_recurrence_aside(const ds_recurrence *s)
{
    return s->within || s->directions == 2;
}

/* Weights of one cell. */
static inline int ds_recurrence_per_cell(const ds_recurrence *s)
{
    return 2 + (s->bias || s->single ? 2 : 0) + (s->projection ? 1 : 0);
}

/* Frames [first, first + n) of a row's input are this call's; returns n. */
static inline size_t ds_recurrence_frames(const ds_op *op, const ds_recurrence *s,
                                          const ds_run *run, size_t row, int64_t *first)
{
    const ds_counts *count = &run->count[row];
    const bool as_out = op->whole || s->single || s->within;
    *first = as_out ? run->out[row].m0 : count->before.known;
    const int64_t end = as_out ? run->out[row].m1 : count->now.known;
    return end > *first ? (size_t)(end - *first) : 0;
}

/* Drops what a layer below the last gives, where the run drops: outputs, or their slopes, of all vectors of the call. */
void ds_recurrence_drop(const ds_op *op, const ds_recurrence *s, const ds_run *run, size_t layer,
                        void *outputs);

/* Its lanes: the same in every call along the stream, others for each frame. */
static inline size_t ds_recurrence_lanes(const ds_recurrence *s, size_t n_frames)
{
    return s->lanes * (s->single || s->within ? n_frames : 1);
}

/* The place of a cell's weight among all; -1 where it has none of this kind. */
int ds_recurrence_weight(const ds_op *op, const ds_recurrence *s, size_t cell, int which);

/* What forward leaves for backward, per cell and vector of the call: what gates are functions of (of a gru: r, z, and
 * both parts of n), c of an lstm, h. Bytes of all of it, and where parts lie. */
enum { DS_LEFT_GATES, DS_LEFT_C, DS_LEFT_H };
static inline size_t ds_recurrence_left_gates(const ds_recurrence *s)
{
    return s->kind == DS_GRU ? s->gates + s->hidden : s->gates;
}
static inline size_t ds_recurrence_left(const ds_recurrence *s, int part)
{
    const size_t gates = ds_recurrence_left_gates(s), c = s->kind == DS_LSTM ? s->hidden : 0;
    return (part == DS_LEFT_GATES ? 0 : part == DS_LEFT_C ? gates : gates + c) * s->element;
}
static inline size_t ds_recurrence_left_bytes(const ds_recurrence *s)
{
    return ds_recurrence_left(s, DS_LEFT_H) + s->out * s->element;
}

void ds_recurrence_set_back_sizes(ds_op *op, const ds_recurrence *s);
void ds_recurrence_backward(const ds_op *op, const ds_back *b);
void ds_recurrence_forward(const ds_op *op, const ds_run *run);
