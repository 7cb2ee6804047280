/* ops/recurrence.h: recurrent cells along the stream, stacked in layers, in one direction or both.
 *
 * in [I]. P: features of h, which are H, or where attribute `projection` is not 0 that many. D: 1, or 2
 * where bidirectional. Weights per layer, and within it per direction (forward, then reverse):
 * weight_ih [gates * H][I, or D * P above the first layer], weight_hh [gates * H][P], where bias is 1
 * bias_ih and bias_hh [gates * H], and where there is a projection weight_hr [P][H]; at the very end
 * h0? [layers * D][P] and, of a cell with two states, c0? [layers * D][H], the state before the first
 * frame (zero without them).
 *
 * Outputs: y [D * P], frame in, frame out; h_n [layers * D][P] and c_n [layers * D][H], one frame at the
 * end. Carried: h [layers][P] and c [layers][H]. Bidirectional needs the whole stream and carries
 * nothing.
 *
 * A layer takes all new frames of all streams through one product with W_ih; then, frame after frame,
 * all streams that have one through one product with W_hh. No row of a product depends on another,
 * so neither chunks nor neighbours show in the results. */
#ifndef DS_OPS_RECURRENCE_H
#define DS_OPS_RECURRENCE_H
#include "ops/recurrent_cell.h"

/* Attributes: the first three are common to all, then comes what a cell has of its own. */
enum { DS_RECURRENCE_LAYERS, DS_RECURRENCE_BIAS, DS_RECURRENCE_BIDIRECTIONAL, DS_RECURRENCE_OWN };

#define DS_RECURRENCE_ATTRS                                                                       \
    {.name = "layers", .kind = DS_ATTR_INT, .i = 1, .doc = "number of stacked layers"},           \
        {.name = "bias", .kind = DS_ATTR_INT, .i = 1, .doc = "1: bias_ih and bias_hh are given"}, \
        {.name = "bidirectional",                                                                 \
         .kind = DS_ATTR_INT,                                                                     \
         .doc = "1: both directions; needs the whole stream"}

ds_status ds_recurrence_infer(ds_op *op, const ds_cell *cell);
void ds_recurrence_counts(const ds_op *op, ds_program *p);
size_t ds_recurrence_prepared_bytes(const ds_op *op, const ds_cell *cell, const ds_real_kernels *k);
void ds_recurrence_prepare(const ds_op *op, const ds_cell *cell, void *prepared,
                           const void *const *weights, const ds_real_kernels *k);
void ds_recurrence_forward(const ds_op *op, const ds_cell *cell, const ds_run *run);

#endif
