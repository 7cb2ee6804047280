/* _core.Count: an integer of a stream as a function of how many frames of its input came, made by operators' own
 * programs.
 *
 *     n = Count()                        the input's total
 *     (m,) = op.totals((n,))             those of an operator's outputs
 *     m.apply(code, n), m.apply(code, 3) arithmetic (ops/expr.h's codes)
 *     (m - n).first_positive((m, n))     the first number of frames at which it is above 0 and so are m and n
 */
#include "ir/integers.h"
#include "python/op.h"

static const int64_t MAX_WORK = (int64_t)1 << 22; /* looks at a step: some hundredths of a second */

typedef struct count_object {
    PyObject_HEAD ds_arena arena;
    const ds_stairs *f;
} count_object;

static const ds_stairs *stairs_of(PyObject *count)
{
    return ((count_object *)count)->f;
}

/* A new one, which keeps a copy of f. */
static PyObject *keep(ds_module *m, const ds_stairs *f)
{
    PyTypeObject *type = m->count_type;
    count_object *self = (count_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    const ds_allocator allocator = ds_allocator_current();
    ds_arena_init(&self->arena, &allocator);
    self->f = f;
    return ds_unless_failed(m, ds_stairs_keep(&self->arena, &self->f), (PyObject *)self);
}

static void begin(ds_stairs_maker *maker)
{
    const ds_allocator allocator = ds_allocator_current();
    ds_arena_init(&maker->arena, &allocator);
    maker->work = MAX_WORK;
}

/* What was made, kept; the maker's memory is given back. */
static PyObject *end(ds_stairs_maker *maker, ds_module *m, ds_status status, const ds_stairs *f)
{
    PyObject *out = status == DS_OK ? keep(m, f) : ds_raise(m, status, NULL);
    ds_arena_free(&maker->arena);
    return out;
}

static PyObject *count_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ds_module *m = ds_module_of(type);
    ds_stairs_maker maker;
    const ds_stairs *f = NULL;
    if (!PyArg_ParseTuple(args, ":Count") || (kwargs && PyDict_GET_SIZE(kwargs)))
        return NULL;
    begin(&maker);
    const ds_status status = ds_stairs_line(&maker, &f, 1, 1, 0);
    return end(&maker, m, status, f);
}

static void count_dealloc(PyObject *self)
{
    ds_arena_free(&((count_object *)self)->arena);
    ds_free_object(self);
}

/* The functions of a tuple of counts. */
static int parse_counts(const ds_module *m, PyObject *tuple, const ds_stairs **f, Py_ssize_t limit)
{
    DS_EXPECT(PyTuple_Check(tuple) && PyTuple_GET_SIZE(tuple) <= limit, PyExc_TypeError,
              "expected a tuple of at most %zd counts", limit);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        DS_EXPECT(Py_IS_TYPE(item, m->count_type), PyExc_TypeError, "expected a Count");
        f[i] = stairs_of(item);
    }
    return 0;
}

PyObject *ds_op_object_totals(PyObject *self, PyObject *inputs)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    const ds_op *op = ((ds_op_object *)self)->op;
    const ds_stairs *in[DS_MAX_INPUTS], *roots[DS_PROGRAM_ROOTS];
    if (parse_counts(m, inputs, in, DS_MAX_INPUTS) < 0)
        return NULL;
    if (PyTuple_GET_SIZE(inputs) != op->n_inputs)
        return PyErr_Format(m->errors[DS_ARGUMENT], "%s: expected counts of %d edges",
                            op->def->name, op->n_inputs);
    ds_stairs_maker maker;
    begin(&maker);
    ds_status status = ds_stairs_program(&maker, &op->counts, in, in, NULL, roots);
    for (int o = 0; o < op->n_outputs && status == DS_OK; o++)
        status = ds_stairs_total(&maker, op, in, &roots[2 * o + 1]);
    PyObject *list = status == DS_OK ? PyList_New(op->n_outputs) : ds_raise(m, status, NULL);
    for (int o = 0; list && o < op->n_outputs; o++)
        ds_set_item(&list, o, keep(m, roots[2 * o + 1]));
    ds_arena_free(&maker.arena);
    return list;
}

static PyObject *count_apply(PyObject *self, PyObject *args)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    int code;
    PyObject *other;
    if (!PyArg_ParseTuple(args, "iO:apply", &code, &other))
        return NULL;
    if (code < DS_EXPR_ADD || code > DS_EXPR_MAX)
        return PyErr_Format(PyExc_ValueError, "there is no arithmetic of code %d", code);
    ds_stairs_maker maker;
    const ds_stairs *f = NULL;
    ds_status status;
    if (Py_IS_TYPE(other, m->count_type)) {
        begin(&maker);
        status = ds_stairs_apply(&maker, &f, (ds_expr_code)code, stairs_of(self), stairs_of(other),
                                 NULL);
    } else {
        const long long k = PyLong_AsLongLong(other);
        if (PyErr_Occurred())
            return NULL;
        begin(&maker);
        status = ds_stairs_apply_k(&maker, &f, (ds_expr_code)code, stairs_of(self), k);
    }
    return end(&maker, m, status, f);
}

static PyObject *count_first_positive(PyObject *self, PyObject *where)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    const ds_stairs *f = stairs_of(self), *condition[DS_PROGRAM_ROOTS];
    if (parse_counts(m, where, condition, DS_PROGRAM_ROOTS) < 0)
        return NULL;
    ds_stairs_maker maker;
    ds_stairs_summary sum;
    begin(&maker);
    ds_status status = DS_OK;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(where) && status == DS_OK; i++)
        status = ds_stairs_mask(&maker, &f, f, condition[i]);
    if (status == DS_OK)
        status = ds_stairs_summarise(&maker, f, &sum);
    PyObject *out = NULL;
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
    } else if (sum.positive >= 0) {
        out = PyLong_FromLongLong(sum.positive);
    } else if (ds_stairs_last(f)->gain > 0) { /* it grows, and is positive some day */
        const ds_flight *last = ds_stairs_last(f);
        const int64_t periods = (-ds_stairs_at(f, last->start)) / last->gain + 1;
        out = PyLong_FromLongLong(last->start + periods * last->period);
    } else {
        out = Py_NewRef(Py_None);
    }
    ds_arena_free(&maker.arena);
    return out;
}

static PyObject *count_at(PyObject *self, PyObject *n)
{
    const long long frames = PyLong_AsLongLong(n);
    if (PyErr_Occurred())
        return NULL;
    if (frames < 0)
        return PyErr_Format(PyExc_ValueError, "a number of frames is 0 or more");
    return PyLong_FromLongLong(ds_stairs_at(stairs_of(self), frames));
}

static PyMethodDef count_methods[] = {
    {"apply", count_apply, METH_VARARGS, "apply(code, other): the count of this arithmetic"},
    {"first_positive", count_first_positive, METH_O,
     "first_positive(where) -> number of frames at which this and all of `where` are above 0, or "
     "None"},
    {"at", count_at, METH_O, "at(n): the value for n frames"},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(count, "Count", count_object, 0, "An integer of a stream as a function of its frames.",
        {Py_tp_new, count_new}, {Py_tp_dealloc, count_dealloc}, {Py_tp_methods, count_methods});
