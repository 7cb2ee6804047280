/* One step by ids. Everything that may fail comes first, then it is put back; what follows the values (the
 * copies out, the ids) can't. Between a look at the table of ids and entering the streams runs no Python
 * code. */
#include "python/call.h"

#include <stdio.h>
#include <string.h>

#include "base/now.h"

static int raise_status(const ds_call *c, ds_status status)
{
    ds_raise(c->m, status, NULL);
    return -1;
}

int ds_call_open(ds_call *c, ds_module *m, ds_engine_object *e, Py_ssize_t n)
{
    *c = (ds_call){.m = m, .e = e, .n = n};
    if (ds_engine_check_open(m, e) < 0)
        return -1;
    c->n_inputs = e->plan->graph->n_inputs;
    c->n_outputs = e->plan->graph->n_outputs;
    const ds_status status = ds_step_take(e->engine, &c->step, (size_t)n);
    if (status != DS_OK)
        return raise_status(c, status);
    e->n_running++; /* nobody closes the engine meanwhile */
    c->ids = ds_call_room(c, (size_t)n, sizeof *c->ids);
    c->live = ds_call_room(c, (size_t)n, sizeof *c->live);
    c->fresh = ds_call_room(c, (size_t)n, sizeof *c->fresh);
    c->sos = ds_call_room(c, (size_t)n, sizeof *c->sos);
    return PyErr_Occurred() ? -1 : 0;
}

void *ds_call_room(ds_call *c, size_t n, size_t item_bytes)
{
    void *p = NULL;
    const ds_status status = ds_arena_push_array(&c->step->arena, &p, n + 1, item_bytes);
    if (status != DS_OK)
        return ds_raise(c->m, status, NULL);
    return memset(p, 0, (n + 1) * item_bytes);
}

/* ---------------------------------------------------------------- ids */
int ds_call_refuse(ds_call *c, ds_status status)
{
    PyObject *ids = PyList_New(0);
    for (Py_ssize_t r = 0; ids && r < c->n; r++)
        if (c->step->bad[r] && PyList_Append(ids, c->ids[r]) < 0)
            Py_CLEAR(ids);
    if (ids)
        ds_raise(c->m, status, ids);
    Py_XDECREF(ids);
    return -1;
}

int ds_call_find(ds_call *c, PyObject *known)
{
    bool unknown = false, live = false;
    c->any_sos = c->any_eos = false;
    c->n_leaving = 0;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        ds_live *found = known ? (ds_live *)PyTuple_GET_ITEM(known, r) : NULL;
        if (!found || !found->slot)
            found = ds_engine_find(c->e, c->ids[r]);
        const bool sos = c->sos[r], eos = c->step->ended[r];
        c->live[r] = found;
        c->any_sos |= sos;
        c->any_eos |= eos;
        c->n_leaving += found && (sos || eos);
        unknown |= !found && !sos;
        live |= found && sos && !c->restart;
    }
    if (!unknown && !live)
        return 0;
    if (PyErr_Occurred())
        return -1;
    for (Py_ssize_t r = 0; r < c->n; r++)
        c->step->bad[r] = unknown ? !c->live[r] && !c->sos[r] : c->live[r] && c->sos[r];
    return ds_call_refuse(
        c,
        unknown
            ? ds_fail(DS_STREAM_ID,
                      "no such streams are live, and these chunks do not start one (sos)")
            : ds_fail(DS_STREAM_ID,
                      "sos, but these streams are live already (restart=True starts them anew)"));
}

/* ---------------------------------------------------------------- slots */
static int refuse_row(const ds_call *c, Py_ssize_t r, ds_status status)
{
    char message[DS_MESSAGE_BYTES] = "";
    strncpy(message, ds_last_error(), sizeof message - 1);
    ds_engine_error(c->m, status, message, c->ids[r]);
    return -1;
}

/* Opens a slot for a row that starts. A new id is taken at once, so that no other thread can start it. */
static int open_row(ds_call *c, Py_ssize_t r)
{
    ds_slot *slot;
    const bool takes_place = c->n_leaving > 0;
    const ds_status status = ds_session_open(c->e->session, &slot, takes_place);
    c->n_leaving -= takes_place;
    if (status != DS_OK)
        return refuse_row(c, r, status);
    (void)ds_slot_enter(slot);
    c->fresh[r] = ds_live_new(c->m, slot);
    if (c->fresh[r] &&
        (c->live[r] || PyDict_SetItem(c->e->table, c->ids[r], (PyObject *)c->fresh[r]) == 0)) {
        c->step->slots[r] = slot;
        return 0;
    }
    Py_CLEAR(c->fresh[r]);
    ds_slot_leave(slot);
    ds_session_close(c->e->session, slot);
    return -1;
}

static int enter_row(ds_call *c, Py_ssize_t r)
{
    const ds_live *live = c->live[r];
    if (live && !ds_slot_enter(live->slot)) {
        (void)ds_fail(DS_BUSY, "another thread is using the stream");
        return refuse_row(c, r, DS_BUSY);
    }
    if (!c->sos[r]) {
        c->step->slots[r] = live->slot;
        return 0;
    }
    if (open_row(c, r) == 0)
        return 0;
    if (live)
        ds_slot_leave(live->slot);
    return -1;
}

int ds_call_enter(ds_call *c)
{
    for (; c->n_entered < c->n; c->n_entered++)
        if (enter_row(c, c->n_entered) < 0)
            return -1;
    const ds_status status = ds_step_begin(c->step);
    return status == DS_OK ? 0 : ds_call_refuse(c, status);
}

int ds_call_ready(ds_call *c)
{
    const ds_status status = ds_step_check(c->step);
    return status == DS_OK ? PyErr_CheckSignals() : ds_call_refuse(c, status);
}

/* Puts everything back as it was. */
static void roll_back(ds_call *c)
{
    for (Py_ssize_t r = 0; r < c->n_entered; r++) {
        if (c->live[r])
            ds_slot_leave(c->live[r]->slot);
        if (!c->sos[r])
            continue;
        if (!c->live[r]) {
            ds_engine_forget(c->e, c->ids[r], c->fresh[r]);
            continue;
        }
        ds_slot_leave(c->fresh[r]->slot);
        ds_session_close(c->e->session, c->fresh[r]->slot);
        c->fresh[r]->slot = NULL;
    }
}

/* Ends the row's stream, or puts the one that starts in the place of what it replaces. */
static void finish_row(ds_call *c, Py_ssize_t r)
{
    ds_live *live = c->live[r], *now = c->fresh[r] ? c->fresh[r] : live;
    if (c->step->ended[r]) {
        if (live && now != live) {
            ds_slot_leave(now->slot);
            ds_session_close(c->e->session, now->slot);
            now->slot = NULL;
        }
        ds_engine_forget(c->e, c->ids[r], live ? live : now);
        return;
    }
    if (!c->fresh[r])
        return;
    ds_session_count(c->e->session, now->slot);
    if (!live)
        return;
    ds_slot *replaced = live->slot;
    live->slot = NULL;
    if (PyDict_SetItem(c->e->table, c->ids[r], (PyObject *)now) < 0)
        PyErr_Clear(); /* cannot be: the key is there */
    ds_slot_leave(replaced);
    ds_session_close(c->e->session, replaced);
}

void ds_call_run(ds_call *c, void (*get)(const ds_call *c, void *context), void *context)
{
    Py_BEGIN_ALLOW_THREADS
    ds_step_run(c->step);
    get(c, context);
    Py_END_ALLOW_THREADS
    c->ran = true;
    const double now = ds_now();
    for (Py_ssize_t r = 0; r < c->n; r++) {
        ds_slot *slot = c->step->slots[r];
        slot->last_used = now;
        const bool ended = c->step->ended[r];
        if (ended || c->fresh[r])
            finish_row(c, r);
        if (!ended)
            ds_slot_leave(slot);
    }
}

void ds_call_close(ds_call *c)
{
    if (!c->step)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (!c->ran)
        roll_back(c);
    if (c->any_sos)
        for (Py_ssize_t r = 0; r < c->n; r++)
            Py_XDECREF(c->fresh[r]);
    PyErr_Restore(type, value, traceback);
    c->e->n_running--;
    ds_step_give(c->e->engine, c->step);
}

/* ---------------------------------------------------------------- arrays */
ds_element ds_element_of(const PyArrayObject *array)
{
    switch (PyArray_TYPE(array)) {
    case NPY_FLOAT32:
        return DS_ELEMENT_F32;
    case NPY_FLOAT64:
        return DS_ELEMENT_F64;
    case NPY_BOOL:
        return DS_ELEMENT_BOOL;
    case NPY_BYTE:
        return DS_ELEMENT_I8;
    case NPY_SHORT:
        return DS_ELEMENT_I16;
    case NPY_INT:
        return DS_ELEMENT_I32;
    case NPY_LONG:
        return sizeof(long) == 8 ? DS_ELEMENT_I64 : DS_ELEMENT_I32;
    case NPY_LONGLONG:
        return DS_ELEMENT_I64;
    case NPY_UBYTE:
        return DS_ELEMENT_U8;
    case NPY_USHORT:
        return DS_ELEMENT_U16;
    case NPY_UINT:
        return DS_ELEMENT_U32;
    case NPY_ULONG:
        return sizeof(long) == 8 ? DS_ELEMENT_U64 : DS_ELEMENT_U32;
    case NPY_ULONGLONG:
        return DS_ELEMENT_U64;
    default:
        return 0;
    }
}

static int64_t refuse_array(const ds_call *c, ds_status status, size_t input, PyArrayObject *a,
                            PyObject *id)
{
    const ds_signature *signature = ds_step_input(c->e->plan, input);
    char shape[128], text[DS_MESSAGE_BYTES];
    ds_signature_text(signature, shape, sizeof shape);
    size_t n = (size_t)snprintf(text, sizeof text,
                                "input %zu: expected %s frames with features %s "
                                "along the given axes, got an array of shape (",
                                input, ds_dtype_name(signature->dtype), shape);
    for (int d = 0; d < PyArray_NDIM(a) && n < sizeof text; d++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", d ? ", " : "",
                              (long long)PyArray_DIM(a, d));
    if (n < sizeof text)
        snprintf(text + n, sizeof text - n, ") and dtype kind '%c%d'", PyArray_DESCR(a)->kind,
                 (int)PyArray_ITEMSIZE(a));
    ds_engine_error(c->m, status, text, id);
    return -1;
}

int64_t ds_call_measure(const ds_call *c, size_t input, const ds_axes *axes, PyArrayObject *array,
                        PyObject *id)
{
    const ds_signature *signature = ds_step_input(c->e->plan, input);
    const ds_element element = ds_element_of(array);
    if (!element || !ds_layout_fits(signature, element))
        return refuse_array(c, DS_DTYPE, input, array, id);
    bool fits = PyArray_NDIM(array) == axes->rank;
    for (int d = 0; fits && d < signature->rank; d++)
        fits = PyArray_DIM(array, axes->axis[d + 1]) == signature->shape[d];
    return fits ? PyArray_DIM(array, axes->axis[0]) : refuse_array(c, DS_SHAPE, input, array, id);
}
