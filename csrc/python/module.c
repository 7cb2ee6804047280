/* dreamstream._core: the extension module. */
#define DS_PYTHON_IMPORT_ARRAY
#include <stdlib.h>
#include <string.h>

#include "python/files.h"
#include "python/support.h"

/* ---------------------------------------------------------------- what there is */
static PyObject *build_attrs(const ds_op_def *def)
{
    static const char *const kinds[] = {"int", "real", "ints", "choice"};
    PyObject *list = PyList_New(0);
    for (const ds_attr_def *a = def->attrs; list && a && a->name; a++) {
        PyObject *item = Py_BuildValue("{s:s,s:s,s:O,s:L,s:d,s:z,s:z}", "name", a->name, "kind",
                                       kinds[a->kind], "required", a->required ? Py_True : Py_False,
                                       "int", (long long)a->i, "real", a->x, "choices", a->choices,
                                       "doc", a->doc);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *operators(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    size_t n;
    const ds_op_def *const *defs = ds_op_defs(&n);
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++) {
        PyObject *attrs = build_attrs(defs[i]);
        PyObject *item =
            attrs ? Py_BuildValue("{s:s,s:z,s:i,s:i,s:i,s:z,s:O,s:O,s:N}", "name", defs[i]->name,
                                  "doc", defs[i]->doc, "n_inputs", defs[i]->n_inputs, "n_outputs",
                                  defs[i]->n_outputs, "n_values", defs[i]->n_values, "weights",
                                  defs[i]->weights, "lockstep",
                                  defs[i]->flags & DS_OP_LOCKSTEP ? Py_True : Py_False, "variadic",
                                  defs[i]->flags & DS_OP_VARIADIC ? Py_True : Py_False,
                                  "attributes", attrs)
                  : NULL;
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *list_backends(void)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < ds_backends(); i++) {
        const ds_kernels *kernels = ds_backend(i);
        PyObject *item = Py_BuildValue(
            "{s:s,s:O,s:O}", "name", kernels->name, "usable",
            ds_backend_usable(kernels) ? Py_True : Py_False, "bitwise",
            ds_backend_bitwise(kernels) ? Py_True : Py_False);
        if (!item || PyList_Append(list, item) < 0)
            Py_CLEAR(list);
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *config(PyObject *self, PyObject *unused)
{
    (void)unused;
    const ds_module *m = PyModule_GetState(self);
    PyObject *backends = ds_have_kernels(m) ? list_backends() : NULL;
    if (!backends)
        return NULL;
    return Py_BuildValue("{s:s,s:s,s:s,s:N,s:z,s:O}", "version", ds_version(), "best_isa",
                         ds_isa_name(ds_cpu_best()), "kernels", m->kernels->name, "backends",
                         backends, "openblas", ds_blas_description(), "blas",
                         m->blas_kernels ? Py_True : Py_False);
}

static PyObject *set_blas_threads(PyObject *self, PyObject *n)
{
    (void)self;
    long threads = PyLong_AsLong(n);
    if (PyErr_Occurred())
        return NULL;
    if (threads < 1 || threads > 1024) {
        PyErr_SetString(PyExc_ValueError, "threads must be 1 to 1024");
        return NULL;
    }
    ds_blas_set_threads((int)threads);
    Py_RETURN_NONE;
}

/* together(rates, frames, skew): per row whether the inputs' frames so far are close enough. */
static PyObject *together(PyObject *self, PyObject *args)
{
    PyObject *rates;
    PyArrayObject *frames;
    long long skew;
    ds_rate rate[DS_MAX_INPUTS];
    ds_clock clock;
    if (!PyArg_ParseTuple(args, "O!O!L", &PyTuple_Type, &rates, &PyArray_Type, &frames, &skew))
        return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(rates);
    if (n < 1 || n > DS_MAX_INPUTS || PyArray_TYPE(frames) != NPY_INT64 ||
        PyArray_NDIM(frames) != 2 || PyArray_DIM(frames, 1) != n || !PyArray_ISCARRAY_RO(frames)) {
        PyErr_SetString(PyExc_ValueError, "frames must be an int64 array (rows, inputs)");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        long long num, den;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rates, i), "LL", &num, &den))
            return NULL;
        rate[i] = (ds_rate){num, den};
    }
    ds_status status = ds_clock_init(&clock, rate, (size_t)n, skew);
    if (status != DS_OK)
        return ds_raise((ds_module *)PyModule_GetState(self), status, NULL);
    npy_intp n_rows = PyArray_DIM(frames, 0);
    PyObject *out = PyArray_SimpleNew(1, &n_rows, NPY_BOOL);
    const int64_t *data = PyArray_DATA(frames);
    npy_bool *flags = out ? PyArray_DATA((PyArrayObject *)out) : NULL;
    for (npy_intp r = 0; flags && r < n_rows; r++)
        flags[r] = ds_clock_together(&clock, data + r * n);
    return out;
}

/* ---------------------------------------------------------------- allocation faults, for tests */
static PyObject *fault_install(PyObject *self, PyObject *unused)
{
    (void)unused;
    ds_module *m = PyModule_GetState(self);
    if (!m->fault) {
        /* Never freed: objects made meanwhile go on using it. */
        m->fault = PyMem_RawMalloc(sizeof *m->fault);
        if (!m->fault)
            return PyErr_NoMemory();
        ds_fault_init(m->fault);
    }
    Py_RETURN_NONE;
}

static PyObject *fault_uninstall(PyObject *self, PyObject *unused)
{
    (void)unused;
    ds_module *m = PyModule_GetState(self);
    if (m->fault)
        ds_fault_disarm(m->fault);
    m->fault = NULL;
    Py_RETURN_NONE;
}

static PyObject *fault_arm(PyObject *self, PyObject *nth)
{
    ds_module *m = PyModule_GetState(self);
    Py_ssize_t n = PyLong_AsSsize_t(nth);
    if (PyErr_Occurred())
        return NULL;
    if (!m->fault || n < 0) {
        PyErr_SetString(PyExc_ValueError, "fault_install() first; nth must not be negative");
        return NULL;
    }
    ds_fault_arm(m->fault, (size_t)n, false);
    Py_RETURN_NONE;
}

static PyObject *fault_stats(PyObject *self, PyObject *unused)
{
    (void)unused;
    const ds_module *m = PyModule_GetState(self);
    if (!m->fault)
        return PyDict_New();
    return Py_BuildValue("{s:n,s:n,s:n,s:n,s:n}", "live_bytes",
                         (Py_ssize_t)ds_fault_live_bytes(m->fault), "live_blocks",
                         (Py_ssize_t)ds_fault_live_blocks(m->fault), "calls",
                         (Py_ssize_t)ds_fault_calls(m->fault), "failures",
                         (Py_ssize_t)ds_fault_failures(m->fault), "bad_releases",
                         (Py_ssize_t)ds_fault_bad_releases(m->fault));
}

static PyMethodDef methods[] = {
    {"operators", operators, METH_NOARGS, "The registry of operators."},
    {"config", config, METH_NOARGS, "What was chosen at import."},
    {"together", together, METH_VARARGS, "together(rates, frames, skew) -> bool per row"},
    {"joined", ds_joined, METH_O, "joined(arrays): a new array of them end to end, in C order."},
    {"read_container", ds_read_container, METH_VARARGS, "The parts of a safetensors file."},
    {"read_model", ds_read_model, METH_VARARGS, "A model file: graph, interface, signatures."},
    {"write_model", ds_write_model, METH_VARARGS, "A model file, to a callable."},
    {"write_container", ds_write_container, METH_VARARGS, "A safetensors file, to a callable."},
    {"set_blas_threads", set_blas_threads, METH_O, "Hold OpenBLAS to n threads."},
    {"fault_install", fault_install, METH_NOARGS, "For tests: count allocations from now on."},
    {"fault_uninstall", fault_uninstall, METH_NOARGS, "For tests: back to the usual allocator."},
    {"fault_arm", fault_arm, METH_O, "For tests: let the nth allocation from now fail."},
    {"fault_stats", fault_stats, METH_NOARGS, "For tests: what was counted."},
    {NULL, NULL, 0, NULL},
};

/* ---------------------------------------------------------------- import */
static int load_errors(ds_module *m)
{
    static const char *const names[DS_N_STATUS] = {
        [DS_SHAPE] = "ShapeError",
        [DS_DTYPE] = "DTypeError",
        [DS_FORMAT] = "FormatError",
        [DS_STREAM_ID] = "StreamIdError",
        [DS_MISMATCH] = "StreamMismatchError",
        [DS_NOT_STREAMABLE] = "NotStreamableError",
        [DS_BUSY] = "StreamBusyError",
        [DS_LIMIT] = "StreamLimitError",
        [DS_MODE] = "ModeError",
        [DS_CLOSED] = "ClosedError",
        [DS_NO_MEMORY] = "OutOfMemoryError",
        [DS_CAPTURE] = "CaptureError",
        [DS_INTERNAL] = "DreamStreamError",
        [DS_ARGUMENT] = "ShapeError",
        [DS_INDEX] = "StreamIndexError",
    };
    PyObject *module = PyImport_ImportModule("dreamstream.errors");
    for (int i = 1; module && i < DS_N_STATUS; i++) {
        m->errors[i] = PyObject_GetAttrString(module, names[i]);
        if (!m->errors[i])
            Py_CLEAR(module);
    }
    Py_XDECREF(module);
    return module ? 0 : -1;
}

static void choose_kernels(ds_module *m)
{
    const ds_kernels *with_blas;
    if (ds_backend_choose(&m->kernels, NULL, false) != DS_OK ||
        ds_backend_choose(&with_blas, NULL, true) != DS_OK) {
        m->kernels = NULL;
        (void)snprintf(m->no_kernels, sizeof m->no_kernels, "%s", ds_last_error());
        return;
    }
    m->blas_kernels = ds_backend_bitwise(with_blas) ? NULL : with_blas;
}

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type)
{
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type ? PyModule_AddType(module, *type) : -1;
}

static int module_exec(PyObject *module)
{
    ds_module *m = PyModule_GetState(module);
    import_array1(-1);
    choose_kernels(m);
    if (load_errors(m) < 0 || PyModule_AddStringConstant(module, "version", ds_version()) < 0 ||
        add_type(module, &ds_op_spec, &m->op_type) < 0 ||
        add_type(module, &ds_graph_spec, &m->graph_type) < 0 ||
        add_type(module, &ds_engine_spec, &m->engine_type) < 0 ||
        add_type(module, &ds_live_spec, &m->live_type) < 0 ||
        add_type(module, &ds_stepper_spec, &m->stepper_type) < 0 ||
        add_type(module, &ds_stream_spec, &m->stream_type) < 0 ||
        add_type(module, &ds_gate_spec, &m->gate_type) < 0 ||
        add_type(module, &ds_hold_spec, &m->hold_type) < 0 ||
        add_type(module, &ds_prepared_spec, &m->prepared_type) < 0)
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    const ds_module *m = PyModule_GetState(module);
    for (int i = 0; i < DS_N_STATUS; i++)
        Py_VISIT(m->errors[i]);
    Py_VISIT(m->op_type);
    Py_VISIT(m->graph_type);
    Py_VISIT(m->engine_type);
    Py_VISIT(m->live_type);
    Py_VISIT(m->stepper_type);
    Py_VISIT(m->stream_type);
    Py_VISIT(m->gate_type);
    Py_VISIT(m->prepared_type);
    Py_VISIT(m->hold_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    ds_module *m = PyModule_GetState(module);
    for (int i = 0; i < DS_N_STATUS; i++)
        Py_CLEAR(m->errors[i]);
    Py_CLEAR(m->op_type);
    Py_CLEAR(m->graph_type);
    Py_CLEAR(m->engine_type);
    Py_CLEAR(m->live_type);
    Py_CLEAR(m->stepper_type);
    Py_CLEAR(m->stream_type);
    Py_CLEAR(m->gate_type);
    Py_CLEAR(m->prepared_type);
    Py_CLEAR(m->hold_type);
    while (m->n_arenas > 0) {
        ds_arena_free(m->arenas[--m->n_arenas]);
        PyMem_RawFree(m->arenas[m->n_arenas]);
    }
    return 0;
}

static void module_free(void *module)
{
    (void)module_clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

struct PyModuleDef ds_module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "dreamstream._core",
    .m_doc = "The C engine.",
    .m_size = sizeof(ds_module),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&ds_module_def);
}
