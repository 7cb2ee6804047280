/* One step by ids. Everything that may fail comes first, then it is put back; what follows the values (the
 * copies out, the ids) can't. Between a look at the table of ids and entering the streams runs no Python
 * code. */
#include "python/call.h"
#include "base/now.h"

int ds_call_open(ds_call *c, ds_module *m, ds_engine_object *e, PyObject *names, Py_ssize_t n)
{
    *c = (ds_call){.m = m, .e = e, .names = names, .n = n};
    if (ds_engine_check_open(m, e) < 0)
        return -1;
    c->n_inputs = e->engine->plan->graph->n_inputs;
    c->n_outputs = e->engine->plan->graph->n_outputs;
    const ds_status status = ds_step_take(e->engine, &c->step, (size_t)n);
    if (status != DS_OK) {
        ds_raise(m, status, NULL);
        return -1;
    }
    e->n_running++; /* nobody closes the engine meanwhile */
    c->ids = ds_call_room(c, (size_t)n, sizeof *c->ids);
    c->live = ds_call_room(c, (size_t)n, sizeof *c->live);
    c->fresh = ds_call_room(c, (size_t)n, sizeof *c->fresh);
    c->sos = ds_call_room(c, (size_t)n, sizeof *c->sos);
    c->in = ds_call_room(c, c->n_inputs, sizeof *c->in);
    c->out = ds_call_room(c, c->n_outputs, sizeof *c->out);
    if (names && c->n_inputs > 1)
        c->step->input_names = ds_call_room(c, c->n_inputs, sizeof *c->step->input_names);
    for (size_t k = 0; c->step->input_names && k < c->n_inputs; k++)
        c->step->input_names[k] = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, (Py_ssize_t)k));
    return PyErr_Occurred() ? -1 : 0;
}

void *ds_call_room(ds_call *c, size_t n, size_t item_bytes)
{
    void *p = NULL;
    const ds_status status = ds_arena_push_zeroed(&c->step->arena, &p, n + 1, item_bytes);
    return status == DS_OK ? p : ds_raise(c->m, status, NULL);
}

/* ---------------------------------------------------------------- ids */
static PyObject *list_bad(const ds_call *c)
{
    PyObject *ids = PyList_New(0);
    for (Py_ssize_t r = 0; ids && r < c->n; r++)
        if (c->step->bad[r] && PyList_Append(ids, c->ids[r]) < 0)
            Py_CLEAR(ids);
    return ids;
}

int ds_call_refuse(const ds_call *c, ds_status status)
{
    DS_OWNED PyObject *ids = list_bad(c);
    if (ids)
        ds_raise(c->m, status, ids);
    return -1;
}

bool ds_call_collect(ds_call *c, Py_ssize_t r)
{
    if (!PyErr_ExceptionMatches(c->m->errors[DS_INTERNAL]) ||
        PyErr_ExceptionMatches(PyExc_MemoryError))
        return false;
    DS_OWNED PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback)
        PyException_SetTraceback(error, traceback);
    c->step->bad[r] = !c->error || Py_TYPE(error) == Py_TYPE(c->error);
    if (!c->error)
        c->error = Py_NewRef(error);
    return true;
}

int ds_call_collected(ds_call *c)
{
    if (!c->error)
        return 0;
    DS_OWNED PyObject *error = ds_given_on(&c->error), *ids = list_bad(c);
    DS_OWNED PyObject *done = ids ? PyObject_CallMethod(error, "concern", "O", ids) : NULL;
    if (done)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    return -1;
}

/* Looks the ids up. */
static int find_rows(ds_call *c, PyObject *known)
{
    bool unknown = false, live = false;
    for (Py_ssize_t r = 0; r < c->n; r++) {
        ds_live *found = known ? (ds_live *)PyTuple_GET_ITEM(known, r) : NULL;
        if (!found || !found->slot)
            found = ds_engine_find(c->e, c->ids[r]);
        const bool sos = c->sos[r];
        c->live[r] = found;
        c->any_sos |= sos;
        c->n_leaving += found && (sos || c->step->ended[r]);
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
        c, ds_fail(DS_STREAM_ID,
                   unknown ? "no such streams are live, and these chunks do not start one (sos)"
                           : "sos, but these streams are live already (restart=True starts them "
                             "anew)"));
}

/* Enters a row's stream, and opens one where it starts. A new id is taken at once, so that no other thread can
 * start it. */
static int enter_row(ds_call *c, Py_ssize_t r)
{
    ds_live *live = c->live[r];
    if (live && !ds_live_enter(c->m, live, c->ids[r]))
        return -1;
    if (c->sos[r]) {
        const bool takes_place = c->n_leaving > 0;
        c->n_leaving -= takes_place;
        c->fresh[r] = ds_live_open(c->m, c->e, c->ids[r], takes_place, !live);
        if (!c->fresh[r] && live)
            ds_slot_leave(live->slot);
    }
    const ds_live *entered = c->sos[r] ? c->fresh[r] : live;
    if (!entered)
        return -1;
    c->step->slots[r] = entered->slot;
    return 0;
}

int ds_call_begin(ds_call *c, PyObject *known)
{
    if (find_rows(c, known) < 0 || ds_frames_measure(c) < 0)
        return -1;
    for (; c->n_entered < c->n; c->n_entered++)
        if (enter_row(c, c->n_entered) < 0)
            return -1;
    const ds_status status = ds_step_begin(c->step);
    if (status != DS_OK)
        return ds_call_refuse(c, status);
    ds_frames_put(c);
    return 0;
}

int ds_call_ready(ds_call *c)
{
    const ds_status status = ds_step_check(c->step);
    if (status == DS_OK && c->e->watch && ds_call_watch(c) < 0)
        return -1;
    return status == DS_OK ? PyErr_CheckSignals() : ds_call_refuse(c, status);
}

/* ---------------------------------------------------------------- the end */
/* Puts everything back as it was. */
static void roll_back(ds_call *c)
{
    for (Py_ssize_t r = 0; r < c->n_entered; r++) {
        ds_live *live = c->live[r], *fresh = c->fresh[r];
        if (live)
            ds_slot_leave(live->slot);
        if (live && fresh)
            ds_live_end(c->e, fresh);
        else if (fresh)
            ds_engine_forget(c->e, c->ids[r], fresh);
    }
}

/* Ends the row's stream, or puts the one that starts in the place of what it replaces. */
static void finish_row(ds_call *c, Py_ssize_t r)
{
    ds_live *live = c->live[r], *fresh = c->fresh[r];
    if (c->step->ended[r]) {
        if (live && fresh)
            ds_live_end(c->e, fresh);
        ds_engine_forget(c->e, c->ids[r], live ? live : fresh);
        return;
    }
    ds_session_count(c->e->engine->session, fresh->slot);
    if (!live)
        return;
    ds_live_end(c->e, live);
    if (PyDict_SetItem(c->e->table, c->ids[r], (PyObject *)fresh) < 0)
        PyErr_Clear(); /* cannot be: the key is there */
}

void ds_call_run(ds_call *c)
{
    PyThreadState *thread = PyEval_SaveThread();
    ds_step_run(c->step);
    ds_frames_get(c);
    PyEval_RestoreThread(thread);
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
    if (c->seen && PyList_Append(PyTuple_GET_ITEM(c->watch, WATCH_SEEN), c->seen) < 0)
        PyErr_Clear(); /* what is only watched stops nobody */
}

void ds_call_close(ds_call *c)
{
    if (!c->step)
        return;
    if (!c->ran)
        roll_back(c);
    if (c->any_sos)
        for (Py_ssize_t r = 0; r < c->n; r++)
            Py_XDECREF(c->fresh[r]);
    c->e->n_running--;
    Py_XDECREF(c->error);
    Py_XDECREF(c->watch);
    Py_XDECREF(c->seen);
    ds_step_give(c->e->engine, c->step);
}
