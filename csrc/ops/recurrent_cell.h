/* ops/recurrent_cell.h: what LSTM, GRU and plain RNN differ in, and their cells on frames by themselves.
 *
 * A cell takes gates * H values of two products, x W_ih^T + b_ih and h W_hh^T + b_hh, and what it
 * remembers: h, and an LSTM c too. recurrence.h runs cells along the stream; here they are operators
 * whose frames know nothing of each other, h and c being inputs:
 *
 *     in x [..., I], then h [..., H], then c [..., H]; or x alone, with zeros for the others
 *     weight_ih [gates * H][I], weight_hh [gates * H][H], bias_ih? and bias_hh? [gates * H]
 *     out h [..., H], then c [..., H]; frame in, frame out */
#ifndef DS_OPS_RECURRENT_CELL_H
#define DS_OPS_RECURRENT_CELL_H
#include "ops/op.h"

typedef struct ds_cell {
    size_t gates;
    int n_states; /* 1: h; 2: h and c */
    bool
        projects; /* along the stream h may be a projection: attribute DS_RECURRENCE_OWN is its size */
    /* One frame: h and c [n], of the frame before, become those of this one; c is NULL where n_states
     * is 1. Where n_states is 2 what h was is not read. */
    void (*step)(const ds_real_kernels *k, void *h, void *c, const void *from_x, const void *from_h,
                 size_t n);
} ds_cell;

ds_status ds_cell_infer(ds_op *op, const ds_cell *cell);
size_t ds_cell_prepared_bytes(const ds_op *op, const ds_cell *cell, const ds_real_kernels *k);
void ds_cell_prepare(const ds_op *op, const ds_cell *cell, void *prepared,
                     const void *const *weights, const ds_real_kernels *k);
void ds_cell_forward(const ds_op *op, const ds_cell *cell, const ds_run *run);

#endif
