"""Planted faults in C: a copy of the package whose engine differs in one line.

The laws of the fast tier notice each.

Only the mutated file is compiled; all other objects are those of the last build (build/objects), or are
compiled once and kept there. A process that finds the copy first on its path runs the laws with it.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dreamstream import _core

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Mutant:
    """One line of C that is changed, and what shows it."""

    file: str
    line: str
    planted: str
    names: tuple[str, ...] = ()  # empty: those that the file defines
    laws: tuple[str, ...] = ()  # empty: all
    into: str = ""  # the file that is compiled, where this one is included
    tests: str = ""  # a file below tests/ that notices it, where no law does


NARROW = "python/test_narrow_weights.py"
MEMORY = "torch/test_memory.py"

MUTANTS = {
    "all channels have the first one's scale": Mutant(
        "ops/stored.c",
        "widen_run(DS_STORED_INT8, from + r * run, run, scales[r], to + r * run);",
        "widen_run(DS_STORED_INT8, from + r * run, run, scales[0], to + r * run);",
        ("linear",),
        tests=NARROW,
    ),
    "narrow weights are rounded towards zero": Mutant(
        "ops/stored.c",
        "ds_narrowed(how, narrow + e * width, from[e], scale);",
        "ds_narrowed(how, narrow + e * width, ds_float_of_bits(ds_float_bits(from[e]) & 0xffff0000), scale);",
        ("linear",),
        tests=NARROW,
    ),
    "panels of bf16 are shifted by less": Mutant(
        "kernels/x86/lanes.inc",
        "_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p))), 16))",
        "_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p))), 15))",
        ("linear",),
        into="kernels/x86_v3/kernels_x86_v3.c",
        tests=NARROW,
    ),
    "recurrent layers stay wide unsaid": Mutant(
        "ops/stored.c",
        "op->stored = can ? how.stored : DS_STORED_WIDE;",
        "op->stored = can && op->n_weights <= 2 ? how.stored : DS_STORED_WIDE;",
        ("lstm",),
        tests=NARROW,
    ),
    "what is given once is not kept": Mutant(
        "ops/sync.c", ".infer = hold_infer, DS_COUNTED(hold),", ".infer = hold_infer, .counts = hold_counts,"
    ),
    "what is given once moves on": Mutant(
        "ops/move.c",
        "ds_move_frames(move, 0, 0, DS_NEVER, 0, 0);",
        "ds_move_frames(move, 0, 0, DS_NEVER, 0, 1);",
        ("hold",),
    ),
    "a memory is not kept": Mutant(
        "ops/attention.c",
        "for (int i = K; i < op->n_inputs; i++)\n        ds_root(p, ds_const(p, 0));",
        "for (int i = K; i < op->n_inputs; i++)\n        ds_root(p, ds_m(p));",
        tests=MEMORY,
    ),
    "all memories have the first one's length": Mutant(
        "ops/attention.c",
        "run->count[K * run->n_rows + row].now.known",
        "run->count[K * run->n_rows + 0 * row].now.known",
        tests=MEMORY,
    ),
    "keys that are weights lack the last": Mutant(
        "ops/attention.c", "return s->n_fixed > 0 ? s->n_fixed :", "return s->n_fixed > 1 ? s->n_fixed - 1 :"
    ),
    "a choice gets another one's expert": Mutant(
        "ops/experts.c",
        "const int64_t e = ((const int64_t *)f.x[INDEX])[i];",
        "const int64_t e = ((const int64_t *)f.x[INDEX])[i - i % s->choices];",
    ),
    "a choice gets another one's vector": Mutant(
        "ops/experts.c",
        "token = (s->each ? i : i / s->choices) * vector;",
        "token = (s->each ? i - i % s->choices : i / s->choices) * vector;",
    ),
    "experts begin where the one before begins": Mutant(
        "ops/experts.c", "return e == 0 ? 0 : c->first[e - 1];", "return e < 2 ? 0 : c->first[e - 2];"
    ),
    "what is dropped is left as it was": Mutant(
        "ops/experts.c", "memset(y, 0, s->n_out * s->element);", "memset(y, 0, s->n_out * s->element / 2);"
    ),
    "choices weighted in another order": Mutant(
        "ops/experts.c",
        "run->k->binary(DS_BINARY_MUL, j == 0 ? y : run->scratch, x, w, n, 1, 0);",
        "run->k->binary(DS_BINARY_MUL, j == 0 ? y : run->scratch, x, w + (k - 1 - 2 * j) * element, n, 1, 0);",
    ),
    "the last of equals first": Mutant(
        "ops/top_k.c",
        "#define LESS_NUMBER(a, b) ((a) < (b))",
        "#define LESS_NUMBER(a, b) ((a) >> 32 < (b) >> 32 || ((a) >> 32 == (b) >> 32 && (a) > (b)))",
    ),
    "phase lost at stride > span": Mutant(
        "ops/conv.c",
        "at = {m * along.stride - along.left, along.mode, plane.total};",
        "at = {plane.out.m0 > 0 && along.stride > ds_padding_span(&along) ? plane.in.at + (m - plane.out.m0) * "
        "along.stride : m * along.stride - along.left, along.mode, plane.total};",
    ),
    "padding within a frame read from its neighbours": Mutant(
        "ops/planes.c",
        "window_inside(inner, s->n_inner, s->inner_step);",
        "(window_inside(inner, s->n_inner, s->inner_step) || in->n > 3);",
        ("conv2d",),
    ),
    "padding applied again with each chunk": Mutant(
        "ops/pad.c",
        "ds_move_fill(move, 0, left, value);",
        "ds_move_fill(move, 0, left, value); ds_move_fill(move, move->m0, move->m0 + left, value);",
    ),
    "tokens behind a stream are those before it": Mutant(
        "ops/pad.c",
        "ds_move_frames(move, DS_MOVE_WEIGHT, behind, DS_NEVER, -total, 1);",
        "ds_move_frames(move, DS_MOVE_WEIGHT, behind, DS_NEVER, -behind, 1);",
    ),
    "reflect state one frame short": Mutant(
        "ops/padding.c",
        "back = ds_padding_span(g) - 1 - 2 * g->right;",
        "back = ds_padding_span(g) - 2 * g->right;",
        ("conv1d",),
    ),
    "replicate state one frame short": Mutant(
        "ops/padding.c",
        "back = ds_padding_span(g) - 1 - g->right;",
        "back = ds_padding_span(g) - g->right;",
        ("conv1d",),
    ),
    "pad's state one frame short": Mutant(
        "ops/pad.c",
        "ds_add_k(p, ds_m(p), -op->attr[LEFT].i - back)",
        "ds_add_k(p, ds_m(p), -op->attr[LEFT].i - back + (back > 0))",
    ),
    "carried state skipped when nothing leaves": Mutant(
        "exec/run.c", "any |= g->edges[node->inputs[i]].frames > 0;", "any |= false;", ("reduce_frames",)
    ),
    "kept frames left behind when their room ends": Mutant(
        "exec/run.c", "memmove(room, room + (size_t)*mark * edge->frame_bytes, n_bytes);", "", ("conv1d", "delay")
    ),
    "a room's first kept frame one too late": Mutant(
        "exec/run.c",
        "*mark = span.where != DS_IN_BUFFER && kept > 0 ? *mark + dropped : 0;",
        "*mark = span.where != DS_IN_BUFFER && kept > 0 ? *mark + dropped + (dropped > 1 && kept > 1) : 0;",
        ("conv1d", "delay"),
    ),
    "integers of another period": Mutant(
        "exec/positions.c",
        "*place = (ds_place){edges, periods, ended};\n            return",
        "*place = (ds_place){edges, periods - (periods > 1), ended};\n            return",
        ("conv1d",),
    ),
    "one state for all lanes": Mutant(
        "ops/recurrence_run.c", "(l * w->s.cells + cell) * n_bytes;", "cell * n_bytes;", ("lstm", "gru")
    ),
    "one state for all frames of a call": Mutant(
        "ops/recurrence_run.c",
        "return w->state + place * (h_bytes",
        "return w->state + 0 * place * (h_bytes",
        ("gru_within", "rnn_within"),
    ),
    "prepared weights that are never made anew": Mutant(
        "python/prepared.c",
        "if (n && memcmp(at, weights[i], n) != 0)",
        "if (false)",
        ("linear", "conv1d"),
        ("edited-weights",),
    ),
    "indices that are not looked at": Mutant(
        "ops/op.c",
        "DS_CHECK(index[i] >= def->least_index && index[i] < end, DS_INDEX,",
        "DS_CHECK(index[i] >= -end, DS_INDEX,",
        ("embedding",),
        laws=("failed-call",),
    ),
    "state published before the end of the call": Mutant(
        "exec/step.c",
        "frames[i] = have[i] + more;",
        "frames[i] = row->slot->block->frames[i] = have[i] + more;",
        ("delay", "conv1d"),
        ("failed-call", "failed-allocation"),
    ),
    "sos lost on an empty row": Mutant(
        "python/call.c",
        "const bool ended = c->step->ended[r];",
        "const bool ended = c->step->ended[r] = c->step->ended[r] || (c->fresh[r] && !c->step->n_frames[r]);",
        ("relu",),
    ),
    "frames counted in 32 bits": Mutant(
        "ops/expr.c",
        "value[i] = saturate(pairs[n->a].known);",
        "value[i] = (int32_t)saturate(pairs[n->a].known);",
        ("conv1d", "frame"),
        ("far",),
    ),
    "snapshots without carried state": Mutant(
        "exec/snapshot.c",
        "memcpy(find_data(p, slot, e), from, e->n_bytes);",
        "memcpy(find_data(p, slot, e), from, e->array >= 0 ? e->n_bytes : 0);",
        ("lstm", "reduce_frames"),
        ("snapshots", "forks"),
    ),
    "statistics of a call's frames for those of each": Mutant(
        "ops/channel_norm.c",
        "const int64_t step = op->whole ? out->m1 - out->m0 : 1;",
        "const int64_t step = out->m1 - out->m0;",
    ),
    "a stream of one value normalised": Mutant(
        "ops/channel_norm.c", "ds_add_k(p, total, -1)", "ds_add_k(p, total, 0)"
    ),
    "the last of equals for the first": Mutant(
        "ops/reduce_features.c",
        "if (v == extreme || v != v)",
        "if ((v == extreme && ds_sums_real(x, e, (i + 1) * step) != v) || v != v)",
        laws=("values", "offline-is-the-same"),
    ),
    "matrices counted along the wrong axis": Mutant("ops/linear.c", "block % size * step;", "block % size;"),
    "too early": Mutant(
        "ops/padding.c",
        "ds_expr known = n_windows(g, p, ds_known(p, 0), g->left);",
        "ds_expr known = n_windows(g, p, ds_known(p, 0), g->left + g->right);",
        ("conv1d",),
    ),
    "too late": Mutant(
        "ops/padding.c",
        "ds_expr known = n_windows(g, p, ds_known(p, 0), g->left);",
        "ds_expr known = n_windows(g, p, ds_known(p, 0), g->left - 1);",
        ("conv1d",),
        ("finality",),
    ),
    "windows that begin beyond the end": Mutant(
        "ops/pool.c",
        "p->roots[1] = ds_select(p, hangs, ds_add_k(p, n, 1), n);",
        "p->roots[1] = ds_add_k(p, n, hangs >= 0);",
    ),
    "windows held back until it is known whether one hangs over": Mutant(
        "ops/pool.c",
        "p->roots[1] = ds_select(p, hangs, ds_add_k(p, n, 1), n);",
        "p->roots[1] = ds_select(p, hangs, ds_add_k(p, n, 1), n);p->roots[0] = ds_add_k(p, p->roots[0], -1);",
        laws=("finality",),
    ),
    "means that begin anew with each chunk": Mutant(
        "ops/reduce_frames.c", "out->data, x, out->m0, out->m1);", "out->data, x, 0, out->m1 - out->m0);"
    ),
    "sums of powers that begin anew with each chunk": Mutant(
        "ops/reduce_frames.c", "i < f->n && t == 0;", "i < f->n;"
    ),
    "squares about the mean of the frames before": Mutant(
        "ops/reduce_frames.c", "squares[i] += off * (v - mean[i]);", "squares[i] += off * off;"
    ),
    "sums that a larger score does not scale": Mutant(
        "ops/softmax_sum.c", "sums[i] * scale[meets[i]] +", "sums[i] +"
    ),
    "equals that change places in order": Mutant(
        "ops/sort.c", "from[a].key <= from[b].key", "from[a].key < from[b].key"
    ),
    "a stream read backwards from the frame before its last": Mutant(
        "ops/whole.c",
        "ds_move_frames(move, 0, 0, DS_NEVER, move->total - 1, -1);",
        "ds_move_frames(move, 0, 0, DS_NEVER, move->total - 1 - (move->total > 1), -1);",
    ),
    "windows before the chunk left out of the sum": Mutant(
        "ops/frame.c",
        "(u - size) / step + 1, .last = u / step};",
        "(u - size) / step + 1 + (u % 7 == 6), .last = u / step};",
    ),
    "allocation in every call": Mutant(
        "exec/engine.c", "ds_step *taken = engine->resting;", "ds_step *taken = NULL;", ("add",), ("allocation",)
    ),
    "blocks of attention at the call's start": Mutant(
        "ops/attention.c",
        "ds_attention_sees(s, i, n_keys, &b->from[n], &b->to[n]);",
        "ds_attention_sees(s, s->chunk > 1 ? out->m0 : i, n_keys, &b->from[n], &b->to[n]);",
    ),
    "blocks of attention that leave before they are whole": Mutant(
        "ops/attention.c",
        "ds_root(p, ds_mul_k(p, ds_floordiv_k(p, seen, chunk), chunk));",
        "ds_root(p, chunk > 1 ? seen : ds_mul_k(p, ds_floordiv_k(p, seen, chunk), chunk));",
    ),
    "keys dropped one too early": Mutant(
        "ops/attention.c",
        "ds_root(p, left == UNBOUNDED ? ds_const(p, 0) : ds_add_k(p, block, -left));",
        "ds_root(p, left == UNBOUNDED ? ds_const(p, 0) : ds_add_k(p, block, left > 1 ? 1 - left : -left));",
    ),
    "rows of attention by distances from the call's start": Mutant(
        "ops/attention.c",
        ".first = op->attr[ROWS_FIRST].i,",
        ".first = op->attr[ROWS_FIRST].i + t->run->out[row].m0,",
    ),
    "angles counted from the call's start": Mutant(
        "ops/positions.c",
        "dsk_turn_far((double)m * op->attr[SCALE].x * angles[i],",
        "dsk_turn_far((double)(m - out->m0) * op->attr[SCALE].x * angles[i],",
    ),
    "positions counted from the call's start": Mutant(
        "ops/positions.c",
        "const int64_t position = ds_length_at(m, steps->ints, steps->n_ints);",
        "const int64_t position = ds_length_at(m - out->m0, steps->ints, steps->n_ints);",
    ),
    "kept keys counted from the call's start": Mutant(
        "ops/attention.c",
        "memcpy(kept + (size_t)j * t->s.groups * n_bytes,",
        "memcpy(kept + (size_t)(j - count->before.known) * t->s.groups * n_bytes,",
    ),
    "keys of a call's own frames alone": Mutant(
        "ops/attention.c",
        "ds_attention_sees(s, i, n_keys, &b->from[n], &b->to[n]);",
        "ds_attention_sees(s, i, n_keys, &b->from[n], &b->to[n]);if (b->from[n] < out->m0) b->from[n] = out->m0;",
    ),
    "rows of the first head for all": Mutant(
        "ops/attention.c",
        "const size_t own = t->op->weight[weight].shape[0] == 1 ? 0 : h;",
        "const size_t own = weight == ROWS || t->op->weight[weight].shape[0] == 1 ? 0 : h;",
    ),
    "sines of distances that leave one out": Mutant(
        "ops/attention.c", "(double)(i / n) * angles[i % n],", "(double)(i / n + (i / n > 2)) * angles[i % n],"
    ),
    "quotients of positions rounded to zero": Mutant(
        "ops/expr.c",
        "ds_expr_apply(length_codes[codes[i]], a, k, 0)",
        "(codes[i] == 2 ? a / k : ds_expr_apply(length_codes[codes[i]], a, k, 0))",
        ("positions",),
    ),
    "distances of attention counted from the call's start": Mutant(
        "ops/attention.c", "b->position[n] = i;", "b->position[n] = i - out->m0;"
    ),
}

SLOPES = ("slopes", "slopes-in-chunks")
ALONG = ("conv1d", "attention", "slice")

MUTANTS |= {
    "slopes of kept frames are dropped": Mutant(
        "exec/back.c", "memcpy(before[r], dx->data, n_old);", "memset(before[r], 0, n_old);", ALONG, SLOPES
    ),
    "slopes of what is carried are dropped": Mutant(
        "exec/back.c",
        "memcpy(before[r], t.dcarried[r], op->carried_bytes);",
        "memset(before[r], 0, op->carried_bytes);",
        ("lstm", "cumulative"),
        SLOPES,
    ),
    "slopes of kept frames are new ones'": Mutant(
        "exec/back.c", "(char *)dx->data + n_old,", "(char *)dx->data,", ALONG, SLOPES
    ),
    "slopes that later calls left go to a window's start": Mutant(
        "exec/back.c",
        "from < end ? ds_slope_at(&dx[r], from, frame)",
        "from < end ? ds_slope_at(&dx[r], dx[r].at, frame)",
        ALONG,
        SLOPES,
    ),
    "slopes are lost where the operator did not run": Mutant(
        "exec/back.c",
        "if (t->whole[i])\n                memcpy(before",
        "if (t->whole[i] && ds_work_runs(&t->work))\n                memcpy(before",
        ALONG,
        SLOPES,
    ),
    "the second tap's slopes are a frame late": Mutant(
        "ops/planes_back.c",
        "w->along.first + t * s->step,",
        "w->along.first + t * s->step + (t == 1),",
        ("conv1d",),
        SLOPES,
    ),
    "a window's weights have the slopes of their first slab": Mutant(
        "ops/planes_back.c",
        "if (p->n == p->max_copies)\n        ds_window_flush_back(p);",
        "if (p->n == p->max_copies)\n        p->n = 0;",
        tests="laws/test_gradients.py",
    ),
    "running means' slopes count from the call's start": Mutant(
        "ops/fold_back.c",
        "g / (double)(f->t0 + t + 1)",
        "g / (double)(t + 1)",
        ("cumulative", "cumulative_within"),
        SLOPES,
    ),
    "an extreme of an earlier call has no slope": Mutant(
        "ops/fold_back.c",
        "double most = f->in ? f->in[0] : 0, slope",
        "double most = f->kind == DS_FOLD_MAX ? -(double)INFINITY : (double)INFINITY, slope",
        ("cumulative", "cumulative_within"),
        SLOPES,
    ),
    "a greatest score's change is forgotten": Mutant(
        "ops/softmax_sum.c",
        "slopes[WEIGHTS][i] *= from > 0 ? exp(largest[i] - top[i]) : 0;",
        "slopes[WEIGHTS][i] *= from > 0 ? 1 : 0;",
        laws=SLOPES,
    ),
    "states that are given have no slope": Mutant(
        "ops/recurrence_back.c",
        "all = slopes ? w->b->dweights[weight]",
        "all = slopes ? NULL",
        ("lstm", "gru"),
        SLOPES,
    ),
    "streams that go on have slopes of states that are given": Mutant(
        "ops/recurrence_back.c", "if (!l->starts) {", "if (!l->starts && !slopes) {", ("lstm", "gru"), SLOPES
    ),
    "padding's slopes go to the first frame": Mutant(
        "ops/planes_back.c",
        "at = frame < 0 || position < 0\n                         ? NULL\n                         : "
        "ds_slope_at(&w->plane.dx, frame,",
        "at = position < 0 ? NULL : ds_slope_at(&w->plane.dx, frame < 0 ? 0 : frame,",
        ("conv1d",),
        SLOPES,
    ),
    "the cell before a call is zero": Mutant(
        "ops/recurrence_back.c",
        "return at ? at : w->zeros;",
        "return at && state == 0 ? at : w->zeros;",
        ("lstm",),
        SLOPES,
    ),
    "slopes of an index replace each other": Mutant(
        "ops/embedding.c",
        "ds_back_add(b->run->k, table + (size_t)index[i] * n_bytes,",
        "memcpy(table + (size_t)index[i] * n_bytes,",
        laws=SLOPES,
    ),
    "slopes of attention by the call's first query": Mutant(
        "ops/attention_back.c",
        "a->position + (int64_t)i, n_keys",
        "a->position - a->run->out[row].m0 + (int64_t)i, n_keys",
        ("attention",),
        SLOPES,
    ),
    "slopes of first keys that stay are lost": Mutant(
        "ops/attention_back.c",
        "if (to)\n                ds_back_add(b->run->k, to, from, n);",
        ";",
        ("attention",),
        SLOPES,
    ),
    "calculus ends at an operator unsaid": Mutant(
        "ops/softmax.c", ".backward = glu_backward, ", "", ("glu",), tests="laws/test_gradients.py"
    ),
    "a norm's deviation is a constant": Mutant(
        "ops/norm_back.c",
        "scale * (u - slopes - h * along)",
        "scale * (u - slopes)",
        ("layer_norm", "group_norm"),
        SLOPES,
    ),
    "a repeated operand has the slope of one": Mutant(
        "ops/operands.c",
        "for (size_t j = 0; j < n; j++)\n            sum += ds_sums_real(slopes",
        "for (size_t j = 0; j < 1; j++)\n            sum += ds_sums_real(slopes",
        ("mul",),
        SLOPES,
    ),
    "slopes of what a loop carries are not used up": Mutant(
        "ops/scan_back.c", "memset(slopes, 0, ds_signature_bytes(s));", ";", ("scan",), SLOPES
    ),
    "rooms of a loop's steps are free before they are read": Mutant(
        "ops/scan_chain.c",
        "if (m->last[v] == node) {",
        "if (m->last[v] >= 0 && m->last[v] <= node + 1) {",
        ("scan",),
    ),
    "moved frames' slopes begin at the window": Mutant(
        "ops/move.c",
        "back ? -back->dx[at].at : -run->in[at].at",
        "-run->in[at].at",
        ("slice", "pad", "frame"),
        ("slopes-of-calls",),
    ),
}


def _macros() -> list[str]:
    """The extension module's own macros, as setup.py has them."""
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PYTHON_MACROS":
            return list(ast.literal_eval(node.value))
    raise LookupError("setup.py has no PYTHON_MACROS")


def build(mutant: Mutant, place: Path) -> Path:
    """Put a copy of the package with the fault into a folder; return the folder."""
    sys.path.insert(0, str(ROOT / "csrc"))
    import cbuild

    text, source = (ROOT / "csrc" / mutant.file).read_text(), ROOT / "csrc" / (mutant.into or mutant.file)
    assert text.count(mutant.line) == 1, f"{mutant.file} has not once: {mutant.line}"
    planted = place / mutant.file
    planted.parent.mkdir(parents=True)
    planted.write_text(text.replace(mutant.line, mutant.planted))
    compiled = source if mutant.into else planted
    blas = _core.config()["openblas"] is not None
    flags = {False: cbuild.flags(openblas=blas), True: cbuild.flags(openblas=blas) + _macros()}
    paths = sysconfig.get_paths()
    includes = [paths["include"], paths["platinclude"], np.get_include()]
    cc, objects = cbuild.extension_compiler(), []
    for python in (False, True):
        files = cbuild.sources(python=python)
        more = {"system_includes": includes, "key": f"{sys.version} numpy {np.__version__}"} if python else {}
        found = cbuild.compile_all(
            cbuild.extension_compiler(), files, cbuild.build_folder() / "objects", flags[python], **more
        )
        objects += [o for f, o in zip(files, found) if f != source]
    python = mutant.file.startswith("python/")
    own = [f for f in flags[python] if f != "-Werror"] + [f"-isystem{i}" for i in includes if python]
    made = planted.with_suffix(".o")
    subprocess.run([*cc, f"-I{place}", *own, "-w", "-c", str(compiled), "-o", str(made)], check=True)
    package = ROOT / "dreamstream"
    copy = place / "dreamstream"
    copy.mkdir()
    core = f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    for path in package.iterdir():
        if path.name not in (core, "__pycache__"):
            (copy / path.name).symlink_to(path)
    after = [str(package / "_openblas" / "libscipy_openblas.so"), "-Wl,-rpath,$ORIGIN/_openblas"] if blas else []
    link = shlex.split(sysconfig.get_config_var("LDSHARED"))
    subprocess.run(
        [*link, *map(str, objects), str(made), "-o", str(copy / core), *after, "-lm", "-pthread"], check=True
    )
    return place


PYTEST = """
import sys, pytest, dreamstream
print("with", dreamstream.__path__[0])
sys.exit(pytest.main(sys.argv[1:]))
"""


def shown_by(mutant: Mutant) -> tuple[str, ...]:
    """The operators whose laws are held against a mutant."""
    text = (ROOT / "csrc" / mutant.file).read_text()
    return mutant.names or tuple(re.findall(r"\bds_op_(\w+) *=", text))


def run(mutant: Mutant, place: Path) -> subprocess.CompletedProcess[str]:
    """Hold the laws of the fast tier, or a file of tests, against a copy; exit status 1 where one breaks."""
    helpers = Path(__file__).resolve().parents[1]
    words = [sys.executable, "-m", "ds_laws", "--fast", *shown_by(mutant)]
    words += [w for law in mutant.laws for w in ("--law", law)]
    if mutant.tests:
        path = str(ROOT / "tests" / mutant.tests)
        words = [sys.executable, "-c", PYTEST, "-x", "-q", "-p", "no:cacheprovider", path]
    usual = {k: v for k, v in os.environ.items() if k != "DREAMSTREAM_LAW_CASES"}
    environment = {**usual, "PYTHONPATH": os.pathsep.join([str(place), str(helpers)])}
    return subprocess.run(words, env=environment, cwd=place, capture_output=True, text=True, timeout=300)
