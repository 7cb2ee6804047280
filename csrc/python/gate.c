/* _core.Gate: lets one thread at a time into something, and refuses the others at once.
 *
 *     gate = Gate()
 *     with gate.hold(ids):     # StreamBusyError, with ids, where another is inside
 *         ...
 *
 * Taking it and giving it back are single steps of the interpreter: an asynchronous exception
 * (KeyboardInterrupt) comes before or after each, never within, so that a gate cannot stay closed. Should
 * one come between taking it and the first statement of the block, then the hold is released with the
 * statement's temporary. */
#include <stdatomic.h>

#include "python/support.h"

typedef struct gate_object {
    PyObject_HEAD atomic_bool busy;
} gate_object;

typedef struct hold_object {
    PyObject_HEAD PyObject *gate, *ids;
    bool inside;
} hold_object;

static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (!PyArg_ParseTuple(args, ":Gate") || (kwargs && PyDict_GET_SIZE(kwargs)))
        return NULL;
    gate_object *self = (gate_object *)type->tp_alloc(type, 0);
    if (self)
        atomic_init(&self->busy, false);
    return (PyObject *)self;
}

static void gate_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *gate_hold(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                           Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    if (n_args != 1 || names) {
        PyErr_SetString(PyExc_TypeError, "hold(ids)");
        return NULL;
    }
    hold_object *hold = (hold_object *)m->hold_type->tp_alloc(m->hold_type, 0);
    if (!hold)
        return NULL;
    hold->gate = Py_NewRef(self);
    hold->ids = Py_NewRef(args[0]);
    return (PyObject *)hold;
}

/* ---------------------------------------------------------------- the hold */
static void give_back(hold_object *hold)
{
    if (hold->inside)
        atomic_store(&((gate_object *)hold->gate)->busy, false);
    hold->inside = false;
}

static PyObject *hold_enter(PyObject *self, PyTypeObject *cls, PyObject *const *args,
                            Py_ssize_t n_args, PyObject *names)
{
    ds_module *m = ds_module_of(cls);
    hold_object *hold = (hold_object *)self;
    (void)args;
    (void)n_args;
    (void)names;
    if (hold->inside || atomic_exchange(&((gate_object *)hold->gate)->busy, true)) {
        (void)ds_fail(DS_BUSY,
                      "a call of this module is under way, in another thread or around this one");
        return ds_raise(m, DS_BUSY, hold->ids);
    }
    hold->inside = true;
    return Py_NewRef(self);
}

static PyObject *hold_exit(PyObject *self, PyObject *unused)
{
    (void)unused;
    give_back((hold_object *)self);
    Py_RETURN_NONE;
}

static int hold_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((hold_object *)self)->gate);
    Py_VISIT(((hold_object *)self)->ids);
    return 0;
}

static void hold_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    hold_object *hold = (hold_object *)self;
    PyObject_GC_UnTrack(self);
    if (hold->gate)
        give_back(hold);
    Py_XDECREF(hold->gate);
    Py_XDECREF(hold->ids);
    type->tp_free(self);
    Py_DECREF(type);
}

#define METHOD(function) \
    (PyCFunction)(void (*)(void)) function, METH_METHOD | METH_FASTCALL | METH_KEYWORDS

static PyMethodDef gate_methods[] = {
    {"hold", METHOD(gate_hold), "hold(ids) -> context manager"},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef hold_methods[] = {
    {"__enter__", METHOD(hold_enter), "Take the gate, or raise StreamBusyError."},
    {"__exit__", hold_exit, METH_VARARGS, "Give it back."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot gate_slots[] = {
    {Py_tp_new, gate_new},
    {Py_tp_dealloc, gate_dealloc},
    {Py_tp_methods, gate_methods},
    {Py_tp_doc, "Lets one thread at a time in."},
    {0, NULL},
};

static PyType_Slot hold_slots[] = {
    {Py_tp_dealloc, hold_dealloc},
    {Py_tp_traverse, hold_traverse},
    {Py_tp_methods, hold_methods},
    {Py_tp_doc, "One thread's stay behind a gate."},
    {0, NULL},
};

PyType_Spec ds_gate_spec = {"dreamstream._core.Gate", sizeof(gate_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, gate_slots};
PyType_Spec ds_hold_spec = {"dreamstream._core.Hold", sizeof(hold_object), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_GC |
                                Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            hold_slots};
