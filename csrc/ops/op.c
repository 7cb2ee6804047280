/* ops/op.c: makes operators from what a caller gives, and drives their integers.
 *
 * Making one: attributes by name (defaults, kinds, sane ranges), signatures, equal rates, the
 * operator's own infer, the layout of its carried block, its three programs. Driving it: the rules
 * that no operator states (op.h). An instance that needs the whole stream has its programs replaced
 * here: known 0 before the end, need 0. */
#include "ops/op.h"
#include "kernels/narrow.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "ops/shapes.h"

/* ---------------------------------------------------------------- attributes */

static int count_attrs(const ds_op_def *def)
{
    int n = 0;
    while (def->attrs != NULL && def->attrs[n].name != NULL)
        n++;
    return n;
}

static ds_status fail_unknown(const ds_op_def *def, const char *name)
{
    char known[256] = "none";
    size_t used = 0;
    for (int i = 0; i < count_attrs(def) && used < sizeof known; i++) {
        const int n = snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                               def->attrs[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return ds_fail(DS_ARGUMENT, "%s: unknown attribute '%.40s'; known are: %s", def->name, name,
                   known);
}

const char *ds_attr_choice(const ds_attr_def *attr, int64_t i, size_t *n_bytes)
{
    const char *choice = attr->choices;
    for (; i > 0; i--)
        choice += strcspn(choice, "|") + 1;
    *n_bytes = strcspn(choice, "|");
    return choice;
}

static ds_status parse_choice(const ds_op_def *def, const ds_attr_def *attr, const char *text,
                              int64_t *index)
{
    DS_CHECK(text != NULL, DS_ARGUMENT, "%s: attribute '%s' is one of %s, as text", def->name,
             attr->name, attr->choices);
    const size_t n = strlen(text);
    const char *choice = attr->choices;
    for (*index = 0;; ++*index) {
        const size_t n_choice = strcspn(choice, "|");
        if (n == n_choice && memcmp(choice, text, n) == 0)
            return DS_OK;
        if (choice[n_choice] == 0)
            break;
        choice += n_choice + 1;
    }
    return ds_fail(DS_ARGUMENT, "%s: attribute '%s' is one of %s, got '%.40s'", def->name,
                   attr->name, attr->choices, text);
}

static ds_status parse_attr(const ds_op_def *def, const ds_attr_def *attr, const ds_attr *given,
                            ds_attr_value *value)
{
    static const char *const kinds[] = {"an integer", "a number", "a list of integers", "text",
                                        "text"};
    const bool int_as_real = attr->kind == DS_ATTR_REAL && given->kind == DS_ATTR_INT;
    const bool text = attr->kind == DS_ATTR_TEXT && given->kind == DS_ATTR_CHOICE;
    const bool list = attr->kind == DS_ATTR_INTS;
    const int n_ints = list ? given->value.n_ints : attr->kind == DS_ATTR_INT ? 1 : 0;
    DS_CHECK(given->kind == attr->kind || int_as_real || text, DS_ARGUMENT,
             "%s: attribute '%s' must be %s", def->name, attr->name, kinds[attr->kind]);
    DS_CHECK(n_ints >= 0 && n_ints <= DS_MAX_INTS, DS_ARGUMENT,
             "%s: attribute '%s' holds at most %d integers, got %d", def->name, attr->name,
             DS_MAX_INTS, n_ints);
    for (int i = 0; i < n_ints; i++) {
        const int64_t k = list ? given->value.ints[i] : given->value.i;
        DS_CHECK(k < DS_INT_LIMIT && k > -DS_INT_LIMIT, DS_ARGUMENT,
                 "%s: attribute '%s' must be below 2^40 in size, got %lld", def->name, attr->name,
                 (long long)k);
        *(list ? &value->ints[i] : &value->i) = k;
    }
    if (list)
        value->n_ints = n_ints;
    if (attr->kind == DS_ATTR_TEXT) {
        DS_CHECK(given->text != NULL, DS_ARGUMENT, "%s: attribute '%s' must be text", def->name,
                 attr->name);
        value->text = given->text;
    }
    if (attr->kind == DS_ATTR_REAL)
        value->x = int_as_real ? (double)given->value.i : given->value.x;
    return attr->kind == DS_ATTR_CHOICE ? parse_choice(def, attr, given->text, &value->i) : DS_OK;
}

static ds_status check_range(const ds_op *op, int i)
{
    const ds_attr_def *attr = &op->def->attrs[i];
    const ds_attr_value value = op->attr[i];
    const long long least = attr->range == DS_FROM_1, got = (long long)value.i;
    if (attr->range == DS_ANY || attr->range == DS_AXIS)
        return DS_OK;
    DS_CHECK(attr->kind != DS_ATTR_REAL || value.x >= 0, DS_ARGUMENT,
             "%s: %s must be at least 0, got %g", op->def->name, attr->name, value.x);
    DS_CHECK(attr->range != DS_0_OR_1 || got == 0 || got == 1, DS_ARGUMENT,
             "%s: %s must be 0 or 1, got %lld", op->def->name, attr->name, got);
    DS_CHECK(attr->kind == DS_ATTR_REAL || got >= least, DS_ARGUMENT,
             "%s: attribute '%s' must be at least %lld, got %lld", op->def->name, attr->name, least,
             got);
    DS_CHECK(attr->most == 0 || got <= attr->most, DS_ARGUMENT,
             "%s: attribute '%s' must be at most %lld, got %lld", op->def->name, attr->name,
             (long long)attr->most, got);
    return DS_OK;
}

static ds_status parse_attrs(ds_op *op, const ds_attr *attrs, size_t n_attrs)
{
    const ds_op_def *def = op->def;
    const int n_known = count_attrs(def);
    bool seen[DS_MAX_ATTRS] = {false};
    DS_ASSERT(n_known <= DS_MAX_ATTRS);
    for (int i = 0; i < n_known; i++) {
        op->attr[i].i = def->attrs[i].i;
        op->attr[i].x = def->attrs[i].x;
    }
    for (size_t j = 0; j < n_attrs; j++) {
        int i = 0;
        DS_CHECK(attrs[j].name != NULL, DS_ARGUMENT, "%s: attribute %zu has no name", def->name, j);
        while (i < n_known && strcmp(def->attrs[i].name, attrs[j].name) != 0)
            i++;
        if (i == n_known)
            return fail_unknown(def, attrs[j].name);
        DS_CHECK(!seen[i], DS_ARGUMENT, "%s: attribute '%s' is given twice", def->name,
                 attrs[j].name);
        seen[i] = true;
        DS_TRY(parse_attr(def, &def->attrs[i], &attrs[j], &op->attr[i]));
    }
    for (int i = 0; i < n_known; i++) {
        DS_CHECK(seen[i] || !def->attrs[i].required, DS_ARGUMENT, "%s: attribute '%s' is required",
                 def->name, def->attrs[i].name);
        DS_TRY(check_range(op, i));
    }
    return DS_OK;
}

/* ---------------------------------------------------------------- signatures */

static bool lowest_terms(ds_rate rate)
{
    ds_rate same = {1, 1};
    return rate.num >= 0 && rate.den >= 1 && ds_rate_scale(&same, rate.num, rate.den) &&
           ds_rate_equal(same, rate);
}

static ds_status check_signature(const ds_op *op, const char *what, size_t i,
                                 const ds_signature *signature)
{
    const char *name = op->def->name;
    DS_CHECK(ds_dtype_bytes(signature->dtype) != 0, DS_DTYPE, "%s: %s %zu has no element type",
             name, what, i);
    DS_CHECK(signature->rank >= 0 && signature->rank <= DS_MAX_RANK, DS_SHAPE,
             "%s: %s %zu has %d feature dimensions, at most %d are supported", name, what, i,
             signature->rank, DS_MAX_RANK);
    for (int d = 0; d < signature->rank; d++) {
        DS_CHECK(signature->shape[d] >= 1, DS_SHAPE,
                 "%s: %s %zu has size %lld in feature dimension %d, expected at least 1", name,
                 what, i, (long long)signature->shape[d], d);
    }
    DS_CHECK(ds_signature_elements(signature) < DS_INT_LIMIT, DS_SHAPE,
             "%s: %s %zu has 2^40 elements or more", name, what, i);
    return DS_OK;
}

static ds_status check_rates(const ds_op *op)
{
    const bool alike = (op->def->flags & (DS_OP_LOCKSTEP | DS_OP_VARIADIC)) != 0;
    const bool memory = (op->def->flags & DS_OP_MEMORY) != 0;
    const int n = memory ? 1 : alike ? op->n_inputs : ds_op_n_values(op);
    for (int i = 0; i < op->n_inputs; i++) {
        DS_CHECK(lowest_terms(op->in[i].rate), DS_ARGUMENT,
                 "%s: the rate %lld/%lld of input %d is no fraction in lowest terms", op->def->name,
                 (long long)op->in[i].rate.num, (long long)op->in[i].rate.den, i);
    }
    for (int i = 1; i < n; i++) {
        const ds_rate a = op->in[0].rate, b = op->in[i].rate;
        DS_CHECK(ds_rate_equal(a, b), DS_MISMATCH,
                 "%s: input 0 has rate %lld/%lld but input %d has rate %lld/%lld", op->def->name,
                 (long long)a.num, (long long)a.den, i, (long long)b.num, (long long)b.den);
    }
    return DS_OK;
}

static ds_status take_signatures(ds_op *op, const ds_signature *inputs, size_t n_inputs,
                                 const ds_signature *weights, size_t n_weights)
{
    const ds_op_def *def = op->def;
    const size_t least = (size_t)def->n_inputs;
    const bool variadic = (def->flags & DS_OP_VARIADIC) != 0;
    DS_CHECK(n_inputs >= least && (variadic || n_inputs == least), DS_ARGUMENT,
             "%s: expected %s%d input%s, got %zu", def->name, variadic ? "at least " : "",
             def->n_inputs, def->n_inputs == 1 ? "" : "s", n_inputs);
    DS_CHECK(n_inputs <= DS_MAX_INPUTS, DS_ARGUMENT, "%s: at most %d inputs are supported, got %zu",
             def->name, DS_MAX_INPUTS, n_inputs);
    const int most = ds_shapes_weights(def->shapes);
    DS_CHECK(n_weights <= (size_t)(most < 0 ? DS_MAX_WEIGHTS : most), DS_ARGUMENT,
             "%s: takes at most %d weights, got %zu", def->name, most < 0 ? DS_MAX_WEIGHTS : most,
             n_weights);
    op->n_inputs = (int)n_inputs;
    op->n_weights = (int)n_weights;
    for (size_t i = 0; i < n_inputs; i++) {
        DS_TRY(check_signature(op, "input", i, &inputs[i]));
        op->in[i] = inputs[i];
    }
    for (size_t i = 0; i < n_weights; i++) {
        if ((int)weights[i].dtype != 0) {
            DS_TRY(check_signature(op, "weight", i, &weights[i]));
            op->weight[i] = weights[i];
        }
    }
    for (int i = 0; i < count_attrs(def); i++)
        DS_CHECK(def->attrs[i].range != DS_AXIS ||
                     (op->attr[i].i >= 0 && op->attr[i].i < op->in[0].rank),
                 DS_SHAPE, "%s: there is no feature dimension %lld, input 0 has %d", def->name,
                 (long long)op->attr[i].i, op->in[0].rank);
    return check_rates(op);
}

/* ---------------------------------------------------------------- what infer left */

static ds_status lay_out_carried(ds_op *op)
{
    DS_ASSERT(op->n_carried >= 0 && op->n_carried <= DS_MAX_CARRIED);
    size_t offset = 0;
    for (int i = 0; i < op->n_carried; i++) {
        ds_carried *carried = &op->carried[i];
        DS_ASSERT(carried->name != NULL && ds_dtype_bytes(carried->array.dtype) != 0);
        const size_t n_bytes = ds_signature_bytes(&carried->array);
        DS_CHECK(n_bytes < SIZE_MAX / 2 - offset, DS_SHAPE, "%s: its state '%s' is too large",
                 op->def->name, carried->name);
        carried->offset = offset;
        offset += ds_aligned(n_bytes);
    }
    op->carried_bytes = offset;
    return DS_OK;
}

static ds_status check_program(const ds_op *op, const ds_program *p, const char *what, int n_roots)
{
    DS_CHECK(!p->full && p->n_roots == n_roots, DS_INTERNAL,
             "%s: its program for %s has %d nodes and %d roots%s, expected %d roots", op->def->name,
             what, p->n_nodes, p->n_roots, p->full ? " and overflows" : "", n_roots);
    return DS_OK;
}

static bool keeps_counts(const ds_op *op)
{
    const ds_program *p = &op->counts;
    for (int i = 0; i < p->n_roots; i++) {
        const ds_expr_node *n = &p->nodes[p->roots[i]];
        if ((i < 2 || ds_rate_equal(op->out[i / 2].rate, op->out[0].rate)) &&
            (n->code != (i % 2 == 0 ? DS_EXPR_KNOWN : DS_EXPR_TOTAL) || n->a != 0)) {
            return false;
        }
    }
    return op->n_inputs == 1 || (op->def->flags & (DS_OP_LOCKSTEP | DS_OP_MEMORY)) != 0;
}

static ds_status build_programs(ds_op *op)
{
    const ds_op_def *def = op->def;
    const int n_values = ds_op_n_values(op);
    const bool at_end = (def->flags & DS_OP_AT_END) != 0;
    if (def->counts != NULL) {
        def->counts(op, &op->counts);
    } else {
        for (int i = 0; i < op->n_outputs; i++) {
            const bool ends = op->at_end >> i & 1;
            ds_root(&op->counts, ends ? ds_const(&op->counts, 0) : ds_known(&op->counts, 0));
            ds_root(&op->counts, ends ? ds_const(&op->counts, 1) : ds_total(&op->counts, 0));
        }
    }
    const ds_expr zero = op->whole ? ds_const(&op->counts, 0) : 0;
    for (int i = 0; i < op->n_outputs && op->whole && 2 * i < op->counts.n_roots; i++)
        op->counts.roots[2 * i] = zero;
    DS_TRY(check_program(op, &op->counts, "counts", 2 * op->n_outputs));
    if (def->need != NULL && !op->whole)
        def->need(op, &op->need);
    for (int i = 0; i < n_values && (def->need == NULL || op->whole); i++)
        ds_root(&op->need, op->whole ? ds_const(&op->need, 0)
                           : at_end  ? ds_const(&op->need, DS_NEVER)
                                     : ds_m(&op->need));
    DS_TRY(check_program(op, &op->need, "need", n_values));
    if (def->check != NULL) {
        def->check(op, &op->check);
        DS_TRY(check_program(op, &op->check, "check", op->check.n_roots / 2 * 2));
    }
    op->same_counts = keeps_counts(op);
    return DS_OK;
}

static ds_status build(ds_op *op, const ds_attr *attrs, size_t n_attrs, const ds_signature *inputs,
                       size_t n_inputs, const ds_signature *weights, size_t n_weights)
{
    DS_TRY(parse_attrs(op, attrs, n_attrs));
    DS_TRY(take_signatures(op, inputs, n_inputs, weights, n_weights));
    op->n_outputs = op->def->n_outputs;
    op->spread = 1;
    op->reads = op->def->reads;
    for (int i = 0; i < op->n_outputs; i++)
        op->out[i] = op->in[0];
    if (op->def->flags & DS_OP_REAL)
        DS_TRY(ds_op_require_real(op));
    DS_TRY(ds_shapes_check(op));
    op->whole = (op->def->flags & DS_OP_WHOLE) != 0;
    op->needs_frames = (op->def->flags & DS_OP_NEEDS_FRAMES) != 0;
    op->at_end = op->def->flags & DS_OP_AT_END ? UINT_MAX : 0;
    if (op->def->infer != NULL)
        DS_TRY(op->def->infer(op));
    for (int i = 0; i < op->n_outputs; i++) {
        if (op->at_end >> i & 1)
            op->out[i].rate = (ds_rate){0, 1};
        DS_TRY(check_signature(op, "output", (size_t)i, &op->out[i]));
        DS_ASSERT(lowest_terms(op->out[i].rate));
    }
    DS_TRY(lay_out_carried(op));
    return build_programs(op);
}

/* ---------------------------------------------------------------- instances */

ds_status ds_op_create(ds_op **op, const ds_allocator *allocator, const ds_op_def *def,
                       const ds_attr *attrs, size_t n_attrs, const ds_signature *inputs,
                       size_t n_inputs, const ds_signature *weights, size_t n_weights)
{
    DS_CHECK(op != NULL && def != NULL, DS_ARGUMENT, "ds_op_create: op and def must not be NULL");
    DS_ASSERT(def->n_inputs >= 1 && def->n_outputs >= 1 && def->n_outputs <= DS_MAX_OUTPUTS);
    const ds_allocator own = allocator != NULL ? *allocator : *ds_default_allocator();
    ds_op *made;
    DS_TRY(ds_allocate_zeroed(&own, (void **)&made, sizeof(ds_op)));
    made->def = def;
    made->allocator = own;
    DS_TRY_ELSE(build(made, attrs, n_attrs, inputs, n_inputs, weights, n_weights),
                ds_op_destroy(made));
    *op = made;
    return DS_OK;
}

void ds_op_destroy(ds_op *op)
{
    if (op != NULL) {
        const ds_allocator allocator = op->allocator;
        if (op->def->release != NULL)
            op->def->release(op);
        ds_release(&allocator, op, sizeof *op);
    }
}

/* The first real type among n signatures; 0 where there is none. */
static ds_dtype first_real(const ds_signature *signatures, int n)
{
    for (int i = 0; i < n; i++)
        if (ds_is_real(signatures[i].dtype))
            return signatures[i].dtype;
    return (ds_dtype)0;
}

size_t ds_scratch_bytes(const ds_scratch *scratch, size_t n_rows, int64_t frames_in,
                        int64_t frames_out)
{
    size_t n = scratch->per_call;
    n = ds_saturated_sum(n, ds_saturated_product(scratch->per_row, n_rows));
    n = ds_saturated_sum(n, ds_saturated_product(scratch->per_in, (size_t)frames_in));
    return ds_saturated_sum(n, ds_saturated_product(scratch->per_out, (size_t)frames_out));
}

size_t ds_op_scratch_bytes(const ds_op *op, size_t n_rows, int64_t frames_in, int64_t frames_out)
{
    return ds_scratch_bytes(&op->scratch, n_rows, frames_in, frames_out);
}

bool ds_op_constant(const ds_op *op)
{
    return (op->def->flags & DS_OP_CONSTANT) != 0 || first_real(op->out, op->n_outputs) == 0 ||
           (first_real(op->in, ds_op_n_values(op)) == 0 &&
            first_real(op->weight, op->n_weights) == 0);
}

bool ds_op_differentiable(const ds_op *op)
{
    return op->def->backward != NULL && !ds_op_constant(op);
}

static ds_real_kernels op_kernels(const ds_op *op, const ds_real_kernels *k)
{
    ds_real_kernels stored = *k;
    if (op->def->flags & DS_OP_BODY) /* each of its operators has its own */
        return stored;
    stored.stored = ds_op_splits(op) ? DS_STORED_SPLIT : op->stored;
    if (op->products && k->element == sizeof(float))
        stored.format = DS_FORMAT_CELLS;
    return stored;
}

size_t ds_op_prepared_bytes(const ds_op *op, const ds_real_kernels *k)
{
    const ds_real_kernels stored = op_kernels(op, k);
    return op->def->prepared_bytes ? op->def->prepared_bytes(op, &stored) : 0;
}

void ds_op_prepare(const ds_op *op, void *prepared, const void *const *weights,
                   const ds_real_kernels *k)
{
    const ds_real_kernels stored = op_kernels(op, k);
    op->def->prepare(op, prepared, weights, &stored);
}

int ds_op_n_values(const ds_op *op)
{
    return op->def->n_values < 0 ? op->n_inputs : op->def->n_values;
}

bool ds_op_framewise(const ds_op *op)
{
    return !op->def->counts && !op->def->need && !op->whole && op->n_carried == 0 &&
           !(op->def->flags & (DS_OP_AT_END | DS_OP_PLACED)) && ds_op_n_values(op) == op->n_inputs;
}

/* ---------------------------------------------------------------- the driver */

/* Whether some input has a total of at most `most`. */
static bool any_at_most(const ds_op *op, const ds_pair *in, int64_t most)
{
    for (int i = 0; i < op->n_inputs; i++)
        if (in[i].total <= most)
            return true;
    return false;
}

void ds_op_counts(const ds_op *op, const ds_pair *in, bool ended, ds_pair *out)
{
    const bool missing = any_at_most(op, in, -1) || (op->needs_frames && in[0].total == 0);
    if (!missing && op->same_counts && op->n_outputs == 1) { /* most operators: no program needed */
        out[0] = (ds_pair){ended ? in[0].total : in[0].known, in[0].total};
        return;
    }
    int64_t results[DS_PROGRAM_ROOTS];
    if (!missing)
        ds_program_eval(&op->counts, in, 0, results);
    for (int i = 0; i < op->n_outputs; i++) {
        const int64_t total = missing ? 0 : results[2 * i + 1] > 0 ? results[2 * i + 1] : 0;
        const int64_t known = missing ? 0 : results[2 * i] > 0 ? results[2 * i] : 0;
        const bool none = missing || (op->needs_frames && total == 0);
        out[i] = (ds_pair){ended || known > total ? total : known, none ? -1 : total};
    }
}

void ds_op_need(const ds_op *op, int64_t m, int64_t *first)
{
    static const ds_pair none[DS_MAX_INPUTS];
    int64_t results[DS_PROGRAM_ROOTS];
    const bool same = op->need.n_nodes == 1 && op->need.nodes[0].code == DS_EXPR_M;
    if (!same)
        ds_program_eval(&op->need, none, m, results);
    for (int i = 0; i < op->n_inputs; i++) {
        const int64_t need = same || i >= op->need.n_roots ? m : results[i];
        first[i] = i >= op->need.n_roots ? DS_NEVER : need > 0 ? need : 0;
    }
}

ds_status ds_op_check(const ds_op *op, const ds_pair *in, bool ended)
{
    if (op->check.n_roots == 0 || any_at_most(op, in, -1))
        return DS_OK;
    int64_t results[DS_PROGRAM_ROOTS];
    ds_program_eval(&op->check, in, 0, results);
    for (int i = 0; i < op->check.n_roots; i += 2) {
        if ((ended || results[i] == 0) && results[i + 1] > 0)
            return op->def->fail_check(op, in);
    }
    return DS_OK;
}

ds_status ds_op_check_values(const ds_op *op, const void *values, int64_t n_frames)
{
    const ds_op_def *def = op->def;
    const int64_t end = op->weight[0].shape[0], *const index = values;
    const int64_t n =
        def->indices ? n_frames * ds_signature_elements(&op->in[def->checked_input]) : 0;
    for (int64_t i = 0; i < n; i++)
        DS_CHECK(index[i] >= def->least_index && index[i] < end, DS_INDEX,
                 "%s: %s %lld is out of range, expected 0 to %lld%s", def->name, def->indices,
                 (long long)index[i], (long long)(end - 1),
                 def->least_index < 0 ? ", or -1 for none" : "");
    return DS_OK;
}

/* ---------------------------------------------------------------- helpers for infer */

ds_status ds_op_require_real(const ds_op *op)
{
    const ds_dtype dtype = op->in[0].dtype;
    for (int i = 0; i < ds_op_n_values(op); i++) {
        DS_CHECK(ds_is_real(op->in[i].dtype), DS_DTYPE,
                 "%s: input %d must be float32 or float64, got %s", op->def->name, i,
                 ds_dtype_name(op->in[i].dtype));
        DS_CHECK(op->in[i].dtype == dtype, DS_DTYPE, "%s: input 0 is %s but input %d is %s",
                 op->def->name, ds_dtype_name(dtype), i, ds_dtype_name(op->in[i].dtype));
    }
    for (int i = 0; i < op->n_weights; i++) {
        DS_CHECK(!ds_op_has_weight(op, i) || op->weight[i].dtype == dtype, DS_DTYPE,
                 "%s: input 0 is %s but weight %d is %s", op->def->name, ds_dtype_name(dtype), i,
                 ds_dtype_name(op->weight[i].dtype));
    }
    return DS_OK;
}

ds_status ds_op_require_weight(const ds_op *op, int i, const char *name, int rank,
                               const int64_t *shape)
{
    DS_CHECK(ds_op_has_weight(op, i), DS_SHAPE, "%s: its weight '%s' is missing", op->def->name,
             name);
    ds_signature expected = op->weight[i];
    expected.rank = rank;
    for (int d = 0; d < rank; d++)
        expected.shape[d] = shape[d];
    DS_CHECK(ds_signature_same_shape(&expected, &op->weight[i]), DS_SHAPE,
             "%s: its weight '%s' must have shape %s, got %s; the input has shape %s",
             op->def->name, name, DS_SHAPE_TEXT(&expected), DS_SHAPE_TEXT(&op->weight[i]),
             DS_SHAPE_TEXT(&op->in[0]));
    return DS_OK;
}

bool ds_op_has_weight(const ds_op *op, int i)
{
    return i >= 0 && i < op->n_weights && (int)op->weight[i].dtype != 0;
}

size_t ds_op_element(const ds_op *op)
{
    return ds_dtype_bytes(op->in[0].dtype);
}

ds_dtype ds_op_real(const ds_op *op)
{
    const ds_dtype of_inputs = first_real(op->in, ds_op_n_values(op)),
                   of_weights = first_real(op->weight, op->n_weights),
                   of_outputs = first_real(op->out, op->n_outputs);
    return of_inputs ? of_inputs : of_weights ? of_weights : of_outputs ? of_outputs : DS_F32;
}

bool ds_next_frames(const ds_op *op, const ds_run *run, ds_frames *f)
{
    while (f->next < run->n_rows && run->out[f->next].m0 >= run->out[f->next].m1)
        f->next++;
    if (f->next == run->n_rows)
        return false;
    f->row = f->next++;
    const ds_target *out = &run->out[f->row];
    f->n = (size_t)(out->m1 - out->m0);
    for (int i = 0; i < ds_op_n_values(op); i++) {
        const ds_window *in = &run->in[(size_t)i * run->n_rows + f->row];
        f->x[i] = in->data ? ds_at(in, out->m0, ds_signature_bytes(&op->in[i])) : NULL;
    }
    for (int o = 0; o < op->n_outputs; o++)
        f->y[o] = run->out[(size_t)o * run->n_rows + f->row].data;
    return true;
}
