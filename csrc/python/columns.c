/* _core.Op.columns: how the windows that a call reads stand to the frames that it makes, and by what the same is known
 * again in a later call. */
#include "python/op.h"

/* What all rows have, or -1. */
static int64_t agreed(int64_t others, int64_t own, Py_ssize_t row)
{
    return row == 0 || others == own ? own : -1;
}

/* By how much frame `own` of an input lies before frame `out` of an output, in units of which both are multiples. */
static int64_t before_output(ds_rate in, ds_rate out, int64_t own_frame, int64_t out_frame)
{
    return out_frame * in.num * out.den - own_frame * out.num * in.den;
}

/* Whether row r reads as many frames further than row 0 as its outputs lie further. */
static bool in_line(const ds_op *op, int i, int64_t further, const ds_counts *const *out,
                    Py_ssize_t r)
{
    for (int o = 0; o < op->n_outputs; o++) {
        const int64_t more = out[o][r].before.known - out[o][0].before.known;
        if (before_output(op->in[i].rate, op->out[o].rate, further, more) != 0)
            return false;
    }
    return true;
}

/* What an input's rows keep and get: the first frame kept of row 0, and of all rows, or -1, how many frames were kept,
 * are now, and are new. */
enum { FIRST, BACK, TAIL, NEW, N_OF_INPUT };
/* Of an output's rows: the first frame of row 0, the most frames of any, and by how many frames the count of each is
 * greater than input 0's, or INT64_MIN where that differs or changes. */
enum { AT, MOST, BEHIND, N_OF_OUTPUT };

typedef struct columns {
    int64_t in[DS_MAX_INPUTS][N_OF_INPUT], out[DS_MAX_OUTPUTS][N_OF_OUTPUT];
    bool lined_up; /* whether windows of all rows begin at the same column */
    bool whole;    /* whether the new frames of an output are as many in every row */
    bool begins;   /* whether a row had no frame of input 0 before */
} columns;

static void find_columns(const ds_op *op, const ds_counts *const *in, const ds_counts *const *out,
                         const bool *ended, Py_ssize_t n_rows, columns *c)
{
    *c = (columns){.lined_up = true, .whole = true};
    for (Py_ssize_t r = 0; r < n_rows; r++) {
        c->begins = c->begins || in[0][r].before.known == 0;
        for (int i = 0; i < ds_op_n_values(op); i++) {
            int64_t *own = c->in[i];
            const ds_pair before = in[i][r].before, now = in[i][r].now;
            const int64_t from = ds_eager_kept_from(op, i, before, out[0][r].before);
            const int64_t kept = now.known - ds_eager_kept_from(op, i, now, out[0][r].now);
            own[FIRST] = r == 0 ? from : own[FIRST];
            own[BACK] = agreed(own[BACK], before.known - from, r);
            own[TAIL] = agreed(own[TAIL], ended[r] ? 0 : kept, r);
            own[NEW] = agreed(own[NEW], now.known - before.known, r);
            c->lined_up =
                c->lined_up && own[BACK] >= 0 && in_line(op, i, from - own[FIRST], out, r);
        }
        for (int o = 0; o < op->n_outputs; o++) {
            int64_t *own = c->out[o];
            const ds_counts y = out[o][r], x = in[0][r];
            const int64_t n = ds_new_frames(&y);
            const bool moved = n == ds_new_frames(&x);
            const int64_t behind = moved ? y.now.known - x.now.known : INT64_MIN;
            c->whole = c->whole && (r == 0 || n == own[MOST]);
            own[AT] = r == 0 ? y.before.known : own[AT];
            own[MOST] = n > own[MOST] ? n : own[MOST];
            own[BEHIND] = r == 0 || own[BEHIND] == behind ? behind : INT64_MIN;
        }
    }
}

/* Whether the first n counts of all rows are those of row 0. */
static bool are_alike(const ds_counts *const *counts, int n, Py_ssize_t n_rows)
{
    for (int i = 0; i < n; i++)
        for (Py_ssize_t r = 1; r < n_rows; r++)
            if (memcmp(&counts[i][r], &counts[i][0], sizeof counts[i][r]) != 0)
                return false;
    return true;
}

/* A key without positions: bytes that are equal in calls that do the same, however late. It has the number of rows, of
 * every input the frames that are kept before, kept after and new, of every output how many are made; and, where windows
 * line up, how far what is read lies before what is made, since that may differ between two calls of the same numbers
 * (a stride that is longer than its window). By how much counts differ is for what moves frames, at one rate; whether
 * a row begins, for what carries something from call to call. */
static PyObject *key_of_columns(const ds_op *op, const columns *c, Py_ssize_t n_rows, bool alike)
{
    int64_t key[5 + DS_MAX_INPUTS * N_OF_INPUT + DS_MAX_OUTPUTS * N_OF_OUTPUT];
    size_t n = 0;
    const int64_t rows[] = {n_rows, alike, c->lined_up, c->whole, c->begins};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        key[n++] = rows[i];
    for (int i = 0; i < ds_op_n_values(op); i++) {
        const bool has_distance = op->n_outputs > 0 && c->lined_up;
        key[n++] = has_distance ? before_output(op->in[i].rate, op->out[0].rate, c->in[i][FIRST],
                                                c->out[0][AT])
                                : 0;
        for (int which = BACK; which < N_OF_INPUT; which++)
            key[n++] = c->in[i][which];
    }
    for (int o = 0; o < op->n_outputs; o++) {
        const bool same_rate = ds_rate_equal(op->in[0].rate, op->out[o].rate);
        key[n++] = c->out[o][MOST];
        key[n++] = same_rate ? c->out[o][BEHIND] : INT64_MIN;
    }
    return PyBytes_FromStringAndSize((const char *)key, (Py_ssize_t)(n * sizeof *key));
}

/* A tuple of n integers. */
static PyObject *integers_of(const int64_t *from, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++)
        ds_set_item(&tuple, i, PyLong_FromLongLong(from[i]));
    return tuple;
}

/* Fills what is found of counts, ended as the methods of Op take them, and returns the key; NULL with an exception. */
static PyObject *parse_columns(PyObject *self, PyObject *inputs, PyObject *outputs, PyObject *ended,
                               columns *c)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    const ds_op *op = ((ds_op_object *)self)->op;
    const ds_counts *in[DS_MAX_INPUTS], *out[DS_MAX_OUTPUTS];
    Py_ssize_t n_rows = -1;
    if (ds_parse_counts(m, op, inputs, op->n_inputs, in, &n_rows) < 0 ||
        ds_parse_counts(m, op, outputs, op->n_outputs, out, &n_rows) < 0)
        return NULL;
    const bool *flags = ds_parse_ended(m, ended, n_rows);
    if (!flags)
        return NULL;
    find_columns(op, in, out, flags, n_rows, c);
    const bool alike = are_alike(in, op->n_inputs, n_rows) && are_alike(out, op->n_outputs, n_rows);
    return key_of_columns(op, c, n_rows, alike);
}

PyObject *ds_op_columns_key(PyObject *self, PyObject *inputs, PyObject *outputs, PyObject *ended)
{
    columns c;
    return parse_columns(self, inputs, outputs, ended, &c);
}

/* A list of input tuples (FIRST to NEW), one of output tuples (AT to BEHIND), whether windows line up, the key. */
PyObject *ds_op_object_columns(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    const ds_op *op = ((ds_op_object *)self)->op;
    if (n_args != 3)
        return PyErr_Format(PyExc_TypeError, "columns(inputs, outputs, ended)");
    columns c;
    PyObject *key = parse_columns(self, args[0], args[1], args[2], &c);
    const int n_values = ds_op_n_values(op);
    if (!key)
        return NULL;
    PyObject *windows = PyList_New(n_values), *results = PyList_New(op->n_outputs);
    for (int i = 0; windows && i < n_values; i++)
        ds_set_item(&windows, i, integers_of(c.in[i], N_OF_INPUT));
    for (int o = 0; results && o < op->n_outputs; o++)
        ds_set_item(&results, o, integers_of(c.out[o], N_OF_OUTPUT));
    return Py_BuildValue("NNNN", windows, results, PyBool_FromLong(c.lined_up), key);
}
