/* _core.Hold: lets one thread at a time into something, and refuses the others at once.
 *
 *     with Hold(lock, ids):     # StreamBusyError, with ids, where another has the lock
 *         ...
 *
 * Taking the lock and giving it back are single steps of the interpreter: an asynchronous exception
 * (KeyboardInterrupt) comes before or after each, never within, so that it cannot stay locked. Should one
 * come between taking it and the first statement of the block, then the hold gives it back as the
 * statement's temporary. */
#include "python/support.h"

typedef struct hold_object {
    PyObject_HEAD PyObject *lock, *ids;
    bool inside;
} hold_object;

static PyObject *hold_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"", "", NULL};
    PyObject *lock, *ids;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Hold", keywords, &lock, &ids))
        return NULL;
    hold_object *self = (hold_object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->lock = Py_NewRef(lock);
    self->ids = Py_NewRef(ids);
    return (PyObject *)self;
}

static PyObject *hold_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    hold_object *hold = (hold_object *)self;
    DS_OWNED PyObject *taken = PyObject_CallMethod(hold->lock, "acquire", "O", Py_False);
    if (!taken)
        return NULL;
    if (taken != Py_True)
        return ds_raise(ds_module_of(Py_TYPE(self)),
                        ds_fail(DS_BUSY, "a call of this module is under way, in another thread or "
                                         "around this one"),
                        hold->ids);
    hold->inside = true;
    return Py_NewRef(self);
}

static PyObject *hold_exit(PyObject *self, PyObject *Py_UNUSED(unused))
{
    hold_object *hold = (hold_object *)self;
    if (!hold->inside)
        Py_RETURN_NONE;
    hold->inside = false;
    return PyObject_CallMethod(hold->lock, "release", NULL);
}

static void hold_dealloc(PyObject *self)
{
    PyObject *error_type, *error, *traceback;
    PyErr_Fetch(&error_type, &error, &traceback);
    Py_XDECREF(hold_exit(self, NULL));
    PyErr_Restore(error_type, error, traceback);
    Py_DECREF(((hold_object *)self)->lock);
    Py_DECREF(((hold_object *)self)->ids);
    ds_free_object(self);
}

static PyMethodDef hold_methods[] = {
    {"__enter__", hold_enter, METH_NOARGS, "Take the lock, or raise StreamBusyError."},
    {"__exit__", hold_exit, METH_VARARGS, "Give it back."},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(hold, "Hold", hold_object, 0,
        "Hold(lock, ids): one thread's stay behind a lock that the others aren't let wait for.",
        {Py_tp_new, hold_new}, {Py_tp_dealloc, hold_dealloc}, {Py_tp_methods, hold_methods});
