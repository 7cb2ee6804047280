/* ops/table.c: rows of a table by absolute position (pe[: f(x.size(L))]).
 *
 *     weight [P][f...]:  y[m] = weight[m],  m < f(total)
 *
 *     known = total = f(total)     need  never: of x only the length is read
 *
 * A stream that outgrows the table is an error, at once. */
#include "ops/length.h"
#include "ops/move.h"
#include "ops/registry.h"

#include <stdio.h>

enum { LENGTH };

static const ds_attr_def table_attrs[] = {
    {"length", DS_ATTR_INTS,
     .doc = "the function, in pairs: 0 c adds, 1 c multiplies, 2 c divides"},
    {0}};

static ds_status table_infer(ds_op *op)
{
    ds_length length;
    ds_signature *out = &op->out[0];
    DS_TRY(ds_length_read(op, LENGTH, &length));
    DS_CHECK(ds_op_has_weight(op, 0), DS_SHAPE, "table: its weight 'weight' is missing");
    DS_CHECK(op->weight[0].rank >= 1, DS_SHAPE,
             "table: its weight needs a dimension for positions");
    out->dtype = op->weight[0].dtype;
    ds_drop_first(op, &op->weight[0]);
    DS_TRY(ds_length_rate(op, &length, &out->rate));
    return DS_OK;
}

static ds_expr table_rows(const ds_op *op, ds_program *p)
{
    const ds_attr_value *codes = &op->attr[LENGTH];
    return ds_length_function(p, ds_total(p, 0), codes->ints, codes->n_ints);
}

static void table_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, table_rows(op, p));
    ds_root(p, table_rows(op, p));
}

static void table_need(const ds_op *op, ds_program *p)
{
    (void)op;
    (void)p; /* no input's values are read */
}

static void table_check(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_const(p, 0));
    ds_root(p, ds_add_k(p, table_rows(op, p), -op->weight[0].shape[0]));
}

static const char *table_check_message(const ds_op *op, const ds_pair *in, char *text,
                                       size_t n_bytes)
{
    ds_pair out[DS_MAX_OUTPUTS];
    ds_op_counts(op, in, true, out);
    snprintf(text, n_bytes, "position %lld is beyond the table's %lld rows",
             (long long)out[0].total, (long long)op->weight[0].shape[0]);
    return text;
}

static void table_pieces(const ds_op *op, const ds_move *move)
{
    const int64_t n = ds_signature_elements(&op->out[0]);
    ds_move_piece(move, &(ds_piece){.input = DS_MOVE_WEIGHT,
                                    .m1 = DS_NEVER,
                                    .step = n,
                                    .hold = 1,
                                    .rank = 1,
                                    .axis = {{n, 1, 1}}});
}
DS_MOVE_FORWARD(table, table_pieces, 0)

const ds_op_def ds_op_table = {.name = "table",
                               .doc = "Rows of a constant, by absolute position in the stream.",
                               .n_inputs = 1,
                               .n_outputs = 1,
                               .n_values = 0,
                               .attrs = table_attrs,
                               .weights = "weight",
                               .infer = table_infer,
                               .counts = table_counts,
                               .need = table_need,
                               .check = table_check,
                               .check_message = table_check_message,
                               .forward = table_forward};
