/* ops/length.c: what a stream's length says, at its end, when it is known.
 *
 *     length   y[0] = f(total)                         x.size(L), given back
 *     require  y[0] = f(total of the first)            assert x.size(L) == y.size(L)
 *              refuses streams at whose end f(total of the first) does not compare with g(total of the other) + plus,
 *              or with plus alone, as the relation says
 *
 *     known  0      total  1      need  never: of the inputs only lengths are read
 *
 * Rate 0: one integer, which leaves when the stream ends. A stream without frames is compared where it is to be. */
#include "ops/length.h"

#include "ops/registry.h"

/* ---------------------------------------------------------------- functions of a length */

static int64_t limited_product(int64_t a, int64_t b)
{
    return a > DS_INT_LIMIT / b ? DS_INT_LIMIT : a * b;
}

ds_status ds_length_rate(const ds_op *op, int attr, ds_rate *rate)
{
    const char *name = op->def->name;
    const ds_attr_value *codes = &op->attr[attr];
    int64_t mul = 1, div = 1;
    DS_CHECK(codes->n_ints % 2 == 0, DS_ARGUMENT,
             "%s: attribute '%s' must hold pairs of a code and a constant, got %d integers", name,
             op->def->attrs[attr].name, codes->n_ints);
    for (int i = 0; i < codes->n_ints; i += 2) {
        const int64_t code = codes->ints[i], k = codes->ints[i + 1];
        DS_CHECK((code >= 0 && code <= 2) || code == 5, DS_ARGUMENT,
                 "%s: attribute '%s' has the code %lld, expected 0 (+), 1 (*), 2 (//) or 5 (max)",
                 name, op->def->attrs[attr].name, (long long)code);
        DS_CHECK((code != 1 && code != 2) || k >= 1, DS_ARGUMENT,
                 "%s: a length is multiplied and divided by 1 or more, got %lld", name,
                 (long long)k);
        mul = code == 1 ? limited_product(mul, k) : mul;
        div = code == 2 ? limited_product(div, k) : div;
    }
    DS_CHECK(mul < DS_INT_LIMIT && div < DS_INT_LIMIT, DS_ARGUMENT,
             "%s: the constants of a length's function exceed 2^40 together", name);
    DS_CHECK(ds_rate_scale(rate, mul, div), DS_ARGUMENT, "%s: the rate of its length overflows",
             name);
    return DS_OK;
}

ds_status ds_length_of_rate(const ds_op *op, int attr, const char *what)
{
    const ds_rate own = op->in[0].rate;
    ds_rate rate = op->in[1].rate;
    DS_TRY(ds_length_rate(op, attr, &rate));
    DS_CHECK(ds_rate_equal(rate, own), DS_MISMATCH,
             "%s: input 0 has rate %lld/%lld, but the length that it is %s to has rate %lld/%lld; "
             "give it that rate first (x[..., ::k]), or do so outside the forward",
             op->def->name, (long long)own.num, (long long)own.den, what, (long long)rate.num,
             (long long)rate.den);
    return DS_OK;
}

void ds_length_counts(const ds_op *op, ds_program *p)
{
    ds_root(p, ds_length_of(op, 0, p, 0));
    ds_root(p, ds_length_of(op, 0, p, 0));
}

ds_expr ds_length_of(const ds_op *op, int attr, ds_program *p, int input)
{
    const ds_attr_value *codes = &op->attr[attr];
    return ds_length_function(p, ds_total(p, input), codes->ints, codes->n_ints);
}

/* The same of a number. */
static int64_t length_at(const ds_op *op, int attr, int64_t total)
{
    return ds_length_at(total, op->attr[attr].ints, op->attr[attr].n_ints);
}

/* ---------------------------------------------------------------- length, require */

enum { LENGTH, OTHER, PLUS, AGAINST, RELATION, EMPTY };
enum { AGAINST_LENGTH, AGAINST_NUMBER };
enum { LEFT_OUT, COMPARED };
enum { EQ, NE, LT, LE, GT, GE };

static const ds_attr_def length_attrs[] = {DS_LENGTH_ATTR("length"), {0}};
static const ds_attr_def require_attrs[] = {
    DS_LENGTH_ATTR("length"),
    DS_LENGTH_ATTR("other"),
    {"plus", DS_ATTR_INT, .doc = "added to the other length, or all that is compared with"},
    {"against", DS_ATTR_CHOICE, .choices = "length|number", .doc = "what is compared with"},
    {"relation", DS_ATTR_CHOICE, .required = true, .choices = "eq|ne|lt|le|gt|ge",
     .doc = "how the first compares with the other"},
    {"empty", DS_ATTR_CHOICE, .choices = "left_out|compared", .doc = "streams without frames"},
    {0}};

static ds_status length_infer(ds_op *op)
{
    ds_rate unused = {1, 1};
    DS_TRY(ds_length_rate(op, LENGTH, &unused));
    if (op->n_inputs > 1)
        DS_TRY(ds_length_rate(op, OTHER, &unused));
    op->out[0] = (ds_signature){.dtype = DS_I64};
    return DS_OK;
}

static void length_forward(const ds_op *op, const ds_run *run)
{
    for (size_t r = 0; r < run->n_rows; r++)
        if (run->out[r].m0 < run->out[r].m1)
            *(int64_t *)run->out[r].data = length_at(op, LENGTH, run->count[r].now.total);
}

static void require_check(const ds_op *op, ds_program *p)
{
    const int64_t plus = op->attr[PLUS].i;
    const ds_expr other = op->attr[AGAINST].i == AGAINST_NUMBER
                              ? ds_const(p, plus)
                              : ds_add_k(p, ds_length_of(op, OTHER, p, 1), plus);
    const ds_expr over = ds_sub(p, ds_length_of(op, LENGTH, p, 0), other); /* a - b */
    const ds_expr under = ds_sub(p, ds_const(p, 0), over);
    ds_expr wrong;
    switch (op->attr[RELATION].i) {
    case EQ:
        wrong = ds_max(p, over, under);
        break;
    case NE:
        wrong = ds_add_k(p, ds_mul_k(p, ds_max(p, over, under), -1), 1);
        break;
    case LT:
    case LE:
        wrong = ds_add_k(p, over, op->attr[RELATION].i == LT);
        break;
    default:
        wrong = ds_add_k(p, under, op->attr[RELATION].i == GT);
    }
    const ds_expr compared = ds_min(p, ds_total(p, 0), ds_total(p, 1));
    ds_root(p, ds_const(p, 1));
    ds_root(p,
            op->attr[EMPTY].i == COMPARED ? wrong : ds_select(p, compared, wrong, ds_const(p, 0)));
}

static ds_status require_fail_check(const ds_op *op, const ds_pair *in)
{
    static const char *const words[] = {"equal",      "not equal", "be less than",
                                        "be at most", "exceed",    "be at least"};
    const int64_t plus = op->attr[PLUS].i;
    const int64_t other =
        op->attr[AGAINST].i == AGAINST_NUMBER ? plus : length_at(op, OTHER, in[1].total) + plus;
    return ds_fail(DS_SHAPE,
                   "require: a length of %lld must %s %lld at the end of the stream; run such "
                   "streams whole, by the model offline, if it takes them",
                   (long long)length_at(op, LENGTH, in[0].total), words[op->attr[RELATION].i],
                   (long long)other);
}

#define LENGTHS \
    .flags = DS_OP_AT_END | DS_OP_CONSTANT, .infer = length_infer, .forward = length_forward

const ds_op_def ds_op_length = {
    DS_OPERATOR_OF(length, "A function of a stream's length, at its end.", 1, 1, 0),
    .attrs = length_attrs, LENGTHS};

const ds_op_def ds_op_require = {
    DS_OPERATOR_OF(require, "Refuses streams whose lengths don't compare as they must.", 2, 1, 0),
    .attrs = require_attrs, LENGTHS, DS_CHECKED(require)};
