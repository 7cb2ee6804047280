/* ops/recurrence.h: what the two files of the recurrent cells share: sizes, and the places of weights. */
#ifndef DS_OPS_RECURRENCE_H
#define DS_OPS_RECURRENCE_H
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

void ds_recurrence_forward(const ds_op *op, const ds_run *run);

#endif
