/* ops/registry.h: the names of all operators, once.
 *
 * Each name on the list has a definition `ds_op_<name>` in one of the files of this folder, whose
 * `name` is the same word. ds_op_defs keeps the order; a new name goes to the end of its group. */
#ifndef DS_OPS_REGISTRY_H
#define DS_OPS_REGISTRY_H
#include "ops/op.h"

#define DS_OP_LIST(X) \
    /* products and recurrences */ \
    X(linear) X(conv1d) X(conv_transpose1d) X(layer_norm) X(lstm) \
    X(embedding) \
    X(gru) X(rnn) X(lstm_cell) X(gru_cell) X(rnn_cell) \
    X(conv2d) X(conv_transpose2d) \
    X(rms_norm) X(batch_norm) X(group_norm) X(matmul) \
    /* along the stream: pads, cuts, alignment, framing */ \
    X(pad) X(slice) X(cut) X(delay) X(sync) X(limit) X(frame) X(unstack) X(table) X(reduce_frames) \
    X(max_pool) X(avg_pool) X(adaptive_pool) X(repeat_frames) X(overlap_add) X(cumulative) \
    X(resample) X(pad_to_multiple) \
    /* elementwise, two or three operands */ \
    X(add) X(sub) X(mul) X(div) X(minimum) X(maximum) X(pow) \
    X(prelu) X(atan2) X(hypot) X(fmod) X(remainder) X(floor_divide) X(copysign) \
    X(eq) X(ne) X(lt) X(le) X(gt) X(ge) X(where) \
    X(logical_not) X(logical_and) X(logical_or) \
    /* elementwise, one operand */ \
    X(relu) X(gelu) X(silu) X(sigmoid) X(tanh) X(exp) X(log) X(sqrt) X(rsqrt) X(abs) X(neg) \
    X(reciprocal) X(square) X(clamp) X(sin) X(cos) X(log1p) X(expm1) X(erf) X(log2) X(log10) \
    X(floor) X(ceil) X(round) X(sign) X(softplus) X(logsigmoid) X(cast) \
    X(elu) X(sinh) X(cosh) X(asin) X(acos) X(atan) X(asinh) X(acosh) X(atanh) X(trunc) X(erfc) \
    /* within a frame */ \
    X(softmax) X(log_softmax) X(glu) X(cat) X(permute) X(reshape) X(narrow) X(expand) \
    X(nearest) X(pad_features) X(reduce_features)

#define DS_OP_DECLARE(name) extern const ds_op_def ds_op_##name;
DS_OP_LIST(DS_OP_DECLARE)
#undef DS_OP_DECLARE

#endif
