/* _core.Prepared: an operator's weights as its kernels want them, kept from call to call.
 *
 *     kept = Prepared(op)
 *     op.run(..., prepared=kept)
 *
 * Weights are the caller's own memory and may change at any time, so a run compares them with a copy of what
 * was prepared, byte by byte: that reads memory in one line, and costs less than preparing. A caller who knows
 * that they are as they were in the run before says so by their version: `kept.expect(version)`. Kernels that
 * read weights where they lie keep nothing here. */
#include <string.h>

#include "base/alloc.h"
#include "cpu/float_env.h"
#include "python/op.h"
#include "structmember.h"

typedef struct prepared_object {
    PyObject_HEAD PyObject *op; /* owned */
    ds_allocator allocator;
    const ds_kernels *kernels; /* for which `data` holds; NULL where it holds nothing */
    char *raw; /* the weights as they were, one after another; NULL before the first run */
    void *data;
    size_t raw_bytes, data_bytes;
    PyObject
        *version; /* owned: what the caller said of the weights of the last run; NULL: nothing */
    unsigned long thread; /* whose run that is */
    bool checked;         /* whether the last run had weights of that version */
    bool unchanged;       /* whether those of the next one are the same */
    bool busy;            /* guarded by the GIL */
} prepared_object;

static size_t weight_bytes(const ds_op *op, int i)
{
    return ds_op_has_weight(op, i) ? ds_signature_bytes(&op->weight[i]) : 0;
}

static PyObject *prepared_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"", NULL};
    ds_module *m = ds_module_of(type);
    PyObject *op;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Prepared", keywords, m->op_type, &op))
        return NULL;
    prepared_object *self = (prepared_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->op = Py_NewRef(op);
    self->allocator = ds_allocator_current();
    const ds_op *made = ((ds_op_object *)op)->op;
    for (int i = 0; i < made->n_weights; i++)
        self->raw_bytes += weight_bytes(made, i);
    return (PyObject *)self;
}

static void prepared_dealloc(PyObject *object)
{
    prepared_object *self = (prepared_object *)object;
    ds_release(&self->allocator, self->raw, self->raw_bytes);
    ds_release(&self->allocator, self->data, self->data_bytes);
    Py_XDECREF(self->op);
    Py_XDECREF(self->version);
    ds_free_object(object);
}

static PyObject *prepared_expect(PyObject *object, PyObject *version)
{
    prepared_object *self = (prepared_object *)object;
    int same = 0;
    if (self->checked && self->version && version != Py_None)
        same = PyObject_RichCompareBool(self->version, version, Py_EQ);
    if (same < 0)
        return NULL;
    if (!self->busy) { /* another run would take it for its own */
        self->unchanged = same;
        self->checked = false;
        self->thread = PyThread_get_thread_ident();
        Py_XSETREF(self->version, version == Py_None ? NULL : Py_NewRef(version));
    }
    Py_RETURN_NONE;
}

bool ds_prepared_take(ds_module *m, PyObject *object, PyObject *op)
{
    prepared_object *self = (prepared_object *)object;
    if (!Py_IS_TYPE(object, m->prepared_type) || self->op != op || self->busy)
        return false;
    if (self->thread !=
        PyThread_get_thread_ident()) { /* nobody said anything of this run's weights */
        self->unchanged = false;
        Py_CLEAR(self->version);
    }
    self->busy = true;
    return true;
}

void ds_prepared_give(PyObject *object)
{
    ((prepared_object *)object)->busy = false;
}

static bool same_weights(const prepared_object *self, const ds_op *op, const void *const *weights)
{
    const char *at = self->raw;
    for (int i = 0; i < op->n_weights; i++) {
        const size_t n = weight_bytes(op, i);
        if (n && memcmp(at, weights[i], n) != 0)
            return false;
        at += n;
    }
    return true;
}

/* Room for the copy and for n_bytes of what is made of it; false where memory is short. */
static bool make_room(prepared_object *self, size_t n_bytes)
{
    void *p = NULL;
    if (self->data && n_bytes != self->data_bytes) {
        ds_release(&self->allocator, self->data, self->data_bytes);
        self->data = NULL;
    }
    if (!self->raw && ds_allocate(&self->allocator, &p, self->raw_bytes) == DS_OK)
        self->raw = p;
    if (self->raw && !self->data && ds_allocate(&self->allocator, &p, n_bytes) == DS_OK)
        self->data = p;
    self->data_bytes = n_bytes;
    return self->data != NULL;
}

/* What is kept is prepared from the copy, so that the two agree whoever writes to the weights. */
const void *ds_prepared_refresh(PyObject *object, const ds_kernels *kernels,
                                const void *const *weights)
{
    prepared_object *self = (prepared_object *)object;
    const ds_op *op = ((ds_op_object *)self->op)->op;
    const bool unchanged = self->unchanged;
    self->unchanged = false;
    if (self->kernels == kernels && (unchanged || same_weights(self, op, weights))) {
        self->checked = true;
        return self->data;
    }
    const ds_real_kernels *const k = &kernels->real[ds_op_real(op) == DS_F64];
    if (k->format == DS_FORMAT_RAW || !op->def->prepare)
        return NULL;
    self->kernels = NULL;
    if (!make_room(self, ds_op_prepared_bytes(op, k)))
        return NULL;
    const void *copies[DS_MAX_WEIGHTS] = {NULL};
    char *at = self->raw;
    for (int i = 0; i < op->n_weights; i++) {
        const size_t n = weight_bytes(op, i);
        if (n)
            copies[i] = memcpy(at, weights[i], n);
        at += n;
    }
    ds_float_env callers;
    ds_float_env_enter(&callers);
    ds_op_prepare(op, self->data, copies, k);
    ds_float_env_leave(&callers);
    self->kernels = kernels;
    self->checked = true;
    return self->data;
}

static PyMethodDef prepared_methods[] = {
    {"expect", prepared_expect, METH_O,
     "expect(version): of the weights of the next run; equal to the last run's, they are not "
     "compared."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef prepared_members[] = {
    {"op", T_OBJECT, offsetof(prepared_object, op), READONLY,
     "The operator whose weights these are."},
    {NULL, 0, 0, 0, NULL},
};

DS_SPEC(prepared, "Prepared", prepared_object, 0,
        "Prepared(op): its weights as its kernels want them, kept from run to run.",
        {Py_tp_new, prepared_new}, {Py_tp_dealloc, prepared_dealloc},
        {Py_tp_methods, prepared_methods}, {Py_tp_members, prepared_members});
