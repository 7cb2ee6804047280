/* dreamstream._core: the extension module. */
#define DS_PYTHON_IMPORT_ARRAY
#include "base/checksum.h"
#include "base/system.h"
#include "base/utf8.h"
#include "exec/session.h"
#include "python/support.h"

/* ---------------------------------------------------------------- what there is */
static PyObject *build_attr(const void *attrs, size_t i)
{
    static const char *const kinds[] = {"int", "real", "ints", "choice", "text"};
    const ds_attr_def *a = (const ds_attr_def *)attrs + i;
    return Py_BuildValue("{s:s,s:s,s:N,s:L,s:d,s:z,s:z}", "name", a->name, "kind", kinds[a->kind],
                         "required", PyBool_FromLong(a->required), "int", (long long)a->i, "real",
                         a->x, "choices", a->choices, "doc", a->doc);
}

static PyObject *build_operator(const void *defs, size_t i)
{
    const ds_op_def *def = ((const ds_op_def *const *)defs)[i];
    size_t n_attrs = 0;
    while (def->attrs && def->attrs[n_attrs].name)
        n_attrs++;
    return Py_BuildValue("{s:s,s:z,s:i,s:i,s:i,s:z,s:N,s:N,s:N,s:N,s:N}", "name", def->name, "doc",
                         def->doc, "n_inputs", def->n_inputs, "n_outputs", def->n_outputs,
                         "n_values", def->n_values, "shapes", def->shapes, "lockstep",
                         PyBool_FromLong(def->flags & DS_OP_LOCKSTEP), "variadic",
                         PyBool_FromLong(def->flags & DS_OP_VARIADIC), "backward",
                         PyBool_FromLong(def->backward != NULL), "constant",
                         PyBool_FromLong(def->flags & DS_OP_CONSTANT), "attributes",
                         ds_build_list(n_attrs, build_attr, def->attrs));
}

static PyObject *operators(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    size_t n;
    const ds_op_def *const *defs = ds_op_defs(&n);
    return ds_build_list(n, build_operator, defs);
}

static PyObject *build_backend(const void *Py_UNUSED(of), size_t i)
{
    const ds_kernels *kernels = ds_backend(i);
    return Py_BuildValue("{s:s,s:N,s:N}", "name", kernels->name, "usable",
                         PyBool_FromLong(ds_backend_usable(kernels)), "bitwise",
                         PyBool_FromLong(ds_backend_bitwise(kernels)));
}

static PyObject *config(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const ds_module *m = PyModule_GetState(self);
    if (!ds_have_kernels(m))
        return NULL;
    return Py_BuildValue("{s:s,s:s,s:s,s:N,s:z,s:N}", "version", ds_version(), "best_isa",
                         ds_isa_name(ds_cpu_best()), "kernels", m->kernels->name, "backends",
                         ds_build_list(ds_backends(), build_backend, NULL), "openblas",
                         ds_blas_description(), "blas", PyBool_FromLong(m->blas_kernels != NULL));
}

/* together(rates, frames, skew): per row whether the inputs' frames so far are close enough. */
static PyObject *together(PyObject *self, PyObject *args)
{
    ds_module *m = PyModule_GetState(self);
    PyObject *rates;
    PyArrayObject *frames;
    long long skew;
    ds_rate rate[DS_MAX_INPUTS];
    ds_clock clock;
    if (!PyArg_ParseTuple(args, "O!O!L", &PyTuple_Type, &rates, &PyArray_Type, &frames, &skew))
        return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(rates);
    if (n < 1 || n > DS_MAX_INPUTS || PyArray_TYPE(frames) != NPY_INT64 ||
        PyArray_NDIM(frames) != 2 || PyArray_DIM(frames, 1) != n || !PyArray_ISCARRAY_RO(frames))
        return PyErr_Format(PyExc_ValueError, "frames must be an int64 array (rows, inputs)");
    for (Py_ssize_t i = 0; i < n; i++) {
        long long num, den;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rates, i), "LL", &num, &den))
            return NULL;
        rate[i] = (ds_rate){num, den};
    }
    const ds_status status = ds_clock_init(&clock, rate, (size_t)n, skew);
    if (status != DS_OK)
        return ds_raise(m, status, NULL);
    npy_intp n_rows = PyArray_DIM(frames, 0);
    PyObject *out = PyArray_SimpleNew(1, &n_rows, NPY_BOOL);
    const int64_t *data = PyArray_DATA(frames);
    npy_bool *flags = out ? ds_data(out) : NULL;
    for (npy_intp r = 0; flags && r < n_rows; r++)
        flags[r] = ds_clock_together(&clock, data + r * n);
    return out;
}

/* shown(text, whole): a name is cut, unless the whole is wanted. */
static PyObject *shown(PyObject *Py_UNUSED(self), PyObject *args)
{
    enum { NAME_ROOM = 241 };
    PyObject *text;
    int whole = 0;
    if (!PyArg_ParseTuple(args, "U|p", &text, &whole))
        return NULL;
    DS_OWNED PyObject *bytes = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    if (!bytes)
        return NULL;
    const size_t n = (size_t)PyBytes_GET_SIZE(bytes);
    const size_t room = whole ? 4 * n + 4 : NAME_ROOM; /* a byte becomes 4 at most */
    DS_SCOPED(ds_memory_end) void *buffer = PyMem_Malloc(room);
    return buffer ? PyUnicode_FromString(ds_utf8_show(buffer, room, PyBytes_AS_STRING(bytes), n))
                  : PyErr_NoMemory();
}

static PyObject *sum_of(PyObject *given, uint64_t (*checksum)(const void *, size_t))
{
    Py_buffer data;
    if (PyObject_GetBuffer(given, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    PyThreadState *const own = data.len < 1 << 16 ? NULL : PyEval_SaveThread();
    const uint64_t sum = checksum(data.buf, (size_t)data.len);
    if (own)
        PyEval_RestoreThread(own);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLongLong(sum);
}

static PyObject *snapshot_checksum(PyObject *Py_UNUSED(self), PyObject *given)
{
    return sum_of(given, ds_snapshot_checksum);
}

static PyObject *checksum(PyObject *Py_UNUSED(self), PyObject *given)
{
    return sum_of(given, ds_checksum);
}

static PyObject *give_back(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    Py_BEGIN_ALLOW_THREADS;
    ds_system_give_back();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"operators", operators, METH_NOARGS, "The registry of operators."},
    {"config", config, METH_NOARGS, "What was chosen at import."},
    {"together", together, METH_VARARGS, "together(rates, frames, skew) -> bool per row"},
    {"snapshot_checksum", snapshot_checksum, METH_O, "Of the whole words of a snapshot before it."},
    {"checksum", checksum, METH_O, "Of an array's bytes, while this process runs."},
    {"give_back", give_back, METH_NOARGS,
     "give_back(): to the system what the allocator holds of freed memory."},
    {"shown", shown, METH_VARARGS, "shown(text, whole=False): text of strangers for a terminal."},
    {"ctc", DS_FAST(ds_python_ctc),
     "ctc(frames, n_frames, targets, n_targets, blank) -> losses, alphas; of these and scales, "
     "slopes"},
    {"adam", DS_FAST(ds_python_adam),
     "adam(p, g, mean, square, most, ...): a step of an optimizer, in place."},
    {"sgd", DS_FAST(ds_python_sgd), "sgd(p, g, mean, ...): a step of an optimizer, in place."},
    {"squares", ds_python_squares, METH_O, "squares(array): the sum of squares, in double."},
    {"draws", DS_FAST(ds_python_draws),
     "draws(keys, first, n, width): numbers in [0, 1) by key, frame and place."},
    {"joined", ds_joined, METH_O, "joined(arrays): a new array of them end to end, in C order."},
    {"callee", DS_FAST(ds_callee),
     "callee(known, converted, stand_ins, direct, builtins, awaited, otherwise, f): what a tracer "
     "calls in f's place."},
    {"truth", DS_FAST(ds_truth),
     "truth(otherwise, x): x where it is True or False, None of Python's own numbers, texts and "
     "containers, else otherwise(x)."},
    {"differing", ds_differing, METH_VARARGS,
     "differing(now, then, versions): which containers no longer hold the very objects that they "
     "held."},
    {"finds", ds_finds, METH_VARARGS,
     "finds(places, names, values, versions): whether dictionaries hold these very objects by "
     "name."},
    {"input_counts", DS_FAST(ds_input_counts),
     "input_counts(frames, lengths, ended): (inputs, rows, 4), of frames before and now."},
    {"check_container", ds_check_container, METH_O, "Whether bytes are a safetensors file."},
    {"read_model", ds_read_model, METH_VARARGS, "A model file: graph, interface, signatures."},
    {"write_model", ds_write_model, METH_VARARGS, "A model file, to a callable."},
    {NULL, NULL, 0, NULL},
};

/* ---------------------------------------------------------------- import */
/* The exception classes, in the order of the statuses; their messages are shown as those of C are. */
static int load_errors(PyObject *self, ds_module *m)
{
    DS_OWNED PyObject *module = PyImport_ImportModule("dreamstream.errors");
    DS_OWNED PyObject *classes = module ? PyObject_GetAttrString(module, "BY_STATUS") : NULL;
    for (Py_ssize_t i = 0; classes && i < DS_N_STATUS; i++) {
        m->errors[i] = PySequence_GetItem(classes, i);
        if (!m->errors[i])
            Py_CLEAR(classes);
    }
    DS_OWNED PyObject *show = classes ? PyObject_GetAttrString(self, "shown") : NULL;
    return show ? PyObject_SetAttrString(module, "shown", show) : -1;
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
    if (load_errors(module, m) < 0 ||
        PyModule_AddStringConstant(module, "version", ds_version()) < 0)
        return -1;
#define ADD(name)                                                 \
    if (add_type(module, &ds_##name##_spec, &m->name##_type) < 0) \
        return -1;
    DS_TYPES(ADD)
    return 0;
}

#define VISIT(name) Py_VISIT(m->name##_type);
static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    const ds_module *m = PyModule_GetState(module);
    for (int i = 0; i < DS_N_STATUS; i++)
        Py_VISIT(m->errors[i]);
    DS_TYPES(VISIT)
    return 0;
}

#define CLEAR(name) Py_CLEAR(m->name##_type);
static int module_clear(PyObject *module)
{
    ds_module *m = PyModule_GetState(module);
    for (int i = 0; i < DS_N_STATUS; i++)
        Py_CLEAR(m->errors[i]);
    DS_TYPES(CLEAR)
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
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* nor NumPy's */
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED}, /* it guards the ids and what Python objects hold */
#endif
    {0, NULL},
};

static struct PyModuleDef ds_module_def = {
    PyModuleDef_HEAD_INIT,         .m_name = "dreamstream._core", .m_doc = "The C engine.",
    .m_size = sizeof(ds_module),   .m_methods = methods,          .m_slots = slots,
    .m_traverse = module_traverse, .m_clear = module_clear,       .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&ds_module_def);
}
