/* ops/rnn.c: plain recurrent layers, along the stream and as a cell on frames by themselves.
 *
 *     h' = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or the positive part of the same sum (relu)
 *
 * Weights, outputs and state: recurrence.h and recurrent_cell.h.
 *
 * Source: torch.nn.RNN, torch.nn.RNNCell. */
#include "ops/recurrence.h"

#define NONLINEARITY         \
    {.name = "nonlinearity", \
     .kind = DS_ATTR_CHOICE, \
     .choices = "tanh|relu", \
     .doc = "what the sum goes through"}

static const ds_attr_def attrs[] = {DS_RECURRENCE_ATTRS, NONLINEARITY, {.name = NULL}};
static const ds_attr_def cell_attrs[] = {NONLINEARITY, {.name = NULL}};

static void rnn_step_tanh(const ds_real_kernels *k, void *h, void *c, const void *from_x,
                          const void *from_h, size_t n)
{
    (void)c;
    k->rnn_cell(h, from_x, from_h, n, 0);
}

static void rnn_step_relu(const ds_real_kernels *k, void *h, void *c, const void *from_x,
                          const void *from_h, size_t n)
{
    (void)c;
    k->rnn_cell(h, from_x, from_h, n, 1);
}

/* By nonlinearity. */
static const ds_cell cells[] = {
    {.gates = 1, .n_states = 1, .step = rnn_step_tanh},
    {.gates = 1, .n_states = 1, .step = rnn_step_relu},
};

static ds_status rnn_infer(ds_op *op)
{
    return ds_recurrence_infer(op, &cells[op->attr[DS_RECURRENCE_OWN].i]);
}

static size_t rnn_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return ds_recurrence_prepared_bytes(op, &cells[op->attr[DS_RECURRENCE_OWN].i], k);
}

static void rnn_prepare(const ds_op *op, void *prepared, const void *const *weights,
                        const ds_real_kernels *k)
{
    ds_recurrence_prepare(op, &cells[op->attr[DS_RECURRENCE_OWN].i], prepared, weights, k);
}

static void rnn_forward(const ds_op *op, const ds_run *run)
{
    ds_recurrence_forward(op, &cells[op->attr[DS_RECURRENCE_OWN].i], run);
}

static ds_status rnn_cell_infer(ds_op *op)
{
    return ds_cell_infer(op, &cells[op->attr[0].i]);
}

static size_t rnn_cell_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    return ds_cell_prepared_bytes(op, &cells[op->attr[0].i], k);
}

static void rnn_cell_prepare(const ds_op *op, void *prepared, const void *const *weights,
                             const ds_real_kernels *k)
{
    ds_cell_prepare(op, &cells[op->attr[0].i], prepared, weights, k);
}

static void rnn_cell_forward(const ds_op *op, const ds_run *run)
{
    ds_cell_forward(op, &cells[op->attr[0].i], run);
}

const ds_op_def ds_op_rnn = {
    .name = "rnn",
    .doc = "plain recurrent layers along the stream",
    .n_inputs = 1,
    .n_outputs = 2,
    .n_values = -1,
    .flags = DS_OP_PACKS,
    .attrs = attrs,
    .weights = "weight_ih* weight_hh* bias_ih?* bias_hh?* h0?",
    .infer = rnn_infer,
    .counts = ds_recurrence_counts,
    .prepared_bytes = rnn_prepared_bytes,
    .prepare = rnn_prepare,
    .forward = rnn_forward,
};

const ds_op_def ds_op_rnn_cell = {
    .name = "rnn_cell",
    .doc = "one step of a plain RNN for every frame by itself, from its own h, or from zeros",
    .n_inputs = 1,
    .n_outputs = 1,
    .n_values = -1,
    .flags = DS_OP_LOCKSTEP | DS_OP_VARIADIC | DS_OP_PACKS,
    .attrs = cell_attrs,
    .weights = "weight_ih weight_hh bias_ih? bias_hh?",
    .infer = rnn_cell_infer,
    .prepared_bytes = rnn_cell_prepared_bytes,
    .prepare = rnn_cell_prepare,
    .forward = rnn_cell_forward,
};
