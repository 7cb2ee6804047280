/* ops/gru.c: gated recurrent units, along the stream and as a cell on frames by themselves.
 *
 *     a = x W_ih^T + b_ih;   b = h W_hh^T + b_hh         (three times H values each: r, z, n)
 *     r = sigmoid(a_r + b_r);   z = sigmoid(a_z + b_z);   n = tanh(a_n + r b_n)
 *     h' = n + z (h - n)
 *
 * Weights, outputs and state: recurrence.h and recurrent_cell.h.
 *
 * Source: torch.nn.GRU, torch.nn.GRUCell. */
#include "ops/recurrence.h"

static const ds_attr_def attrs[] = {DS_RECURRENCE_ATTRS, {.name = NULL}};

static void gru_step(const ds_real_kernels *k, void *h, void *c, const void *from_x,
                     const void *from_h, size_t n)
{
    (void)c;
    k->gru_cell(h, from_x, from_h, n);
}

static const ds_cell cell = {.gates = 3, .n_states = 1, .step = gru_step};

static ds_status gru_infer(ds_op *op)
{
    return ds_recurrence_infer(op, &cell);
}

static size_t gru_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return ds_recurrence_prepared_bytes(op, &cell, k);
}

static void gru_prepare(const ds_op *op, void *prepared, const void *const *weights,
                        const ds_real_kernels *k)
{
    ds_recurrence_prepare(op, &cell, prepared, weights, k);
}

static void gru_forward(const ds_op *op, const ds_run *run)
{
    ds_recurrence_forward(op, &cell, run);
}

static ds_status gru_cell_infer(ds_op *op)
{
    return ds_cell_infer(op, &cell);
}

static size_t gru_cell_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return ds_cell_prepared_bytes(op, &cell, k);
}

static void gru_cell_prepare(const ds_op *op, void *prepared, const void *const *weights,
                             const ds_real_kernels *k)
{
    ds_cell_prepare(op, &cell, prepared, weights, k);
}

static void gru_cell_forward(const ds_op *op, const ds_run *run)
{
    ds_cell_forward(op, &cell, run);
}

const ds_op_def ds_op_gru = {
    .name = "gru",
    .doc = "gated recurrent units along the stream",
    .n_inputs = 1,
    .n_outputs = 2,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .attrs = attrs,
    .weights = "weight_ih* weight_hh* bias_ih?* bias_hh?* h0?",
    .infer = gru_infer,
    .counts = ds_recurrence_counts,
    .prepared_bytes = gru_prepared_bytes,
    .prepare = gru_prepare,
    .forward = gru_forward,
};

const ds_op_def ds_op_gru_cell = {
    .name = "gru_cell",
    .doc = "one step of a GRU for every frame by itself, from its own h, or from zeros",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_PACKS,
    .weights = "weight_ih weight_hh bias_ih? bias_hh?",
    .infer = gru_cell_infer,
    .prepared_bytes = gru_cell_prepared_bytes,
    .prepare = gru_cell_prepare,
    .forward = gru_cell_forward,
};
