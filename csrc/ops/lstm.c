/* ops/lstm.c: long short-term memory, along the stream and as a cell on frames by themselves.
 *
 *     i, f, g, o = x W_ih^T + b_ih + h W_hh^T + b_hh     (four times H values, in this order)
 *     c' = sigmoid(f) c + sigmoid(i) tanh(g);   h' = sigmoid(o) tanh(c')
 *
 * With a projection h' W_hr^T takes the place of h'. Weights, outputs and state: recurrence.h and
 * recurrent_cell.h.
 *
 * Source: torch.nn.LSTM, torch.nn.LSTMCell. */
#include "ops/recurrence.h"

static const ds_attr_def attrs[] = {
    DS_RECURRENCE_ATTRS,
    {.name = "projection",
     .kind = DS_ATTR_INT,
     .doc = "features of h where weight_hr is given; 0: it is not"},
    {.name = NULL},
};

static void lstm_step(const ds_real_kernels *k, void *h, void *c, const void *from_x,
                      const void *from_h, size_t n)
{
    k->lstm_cell(h, c, from_x, from_h, n);
}

static const ds_cell cell = {.gates = 4, .n_states = 2, .projects = true, .step = lstm_step};

static ds_status lstm_infer(ds_op *op)
{
    return ds_recurrence_infer(op, &cell);
}

static size_t lstm_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return ds_recurrence_prepared_bytes(op, &cell, k);
}

static void lstm_prepare(const ds_op *op, void *prepared, const void *const *weights,
                         const ds_real_kernels *k)
{
    ds_recurrence_prepare(op, &cell, prepared, weights, k);
}

static void lstm_forward(const ds_op *op, const ds_run *run)
{
    ds_recurrence_forward(op, &cell, run);
}

static ds_status lstm_cell_infer(ds_op *op)
{
    return ds_cell_infer(op, &cell);
}

static size_t lstm_cell_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return ds_cell_prepared_bytes(op, &cell, k);
}

static void lstm_cell_prepare(const ds_op *op, void *prepared, const void *const *weights,
                              const ds_real_kernels *k)
{
    ds_cell_prepare(op, &cell, prepared, weights, k);
}

static void lstm_cell_forward(const ds_op *op, const ds_run *run)
{
    ds_cell_forward(op, &cell, run);
}

const ds_op_def ds_op_lstm = {
    .name = "lstm",
    .doc = "long short-term memory along the stream",
    .n_inputs = 1,
    .n_outputs = 3,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .attrs = attrs,
    .weights = "weight_ih* weight_hh* bias_ih?* bias_hh?* weight_hr?* h0? c0?",
    .infer = lstm_infer,
    .counts = ds_recurrence_counts,
    .prepared_bytes = lstm_prepared_bytes,
    .prepare = lstm_prepare,
    .forward = lstm_forward,
};

const ds_op_def ds_op_lstm_cell = {
    .name = "lstm_cell",
    .doc = "one step of an LSTM for every frame by itself, from its own h and c, or from zeros",
    .n_inputs = 1,
    .n_outputs = 2,
    .n_values = -1,
    .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_PACKS,
    .weights = "weight_ih weight_hh bias_ih? bias_hh?",
    .infer = lstm_cell_infer,
    .prepared_bytes = lstm_cell_prepared_bytes,
    .prepare = lstm_cell_prepare,
    .forward = lstm_cell_forward,
};
