/* _core.Decoder: what turns scores into words. _core.Decoding: one stream of it. */
#include "decode/ctc.h"
#include "exec/transducer.h"
#include "python/engine.h"

typedef struct decoder_object {
    PyObject_HEAD ds_ctc *ctc;
    PyObject *networks[2]; /* the engines of a transducer, whose plans it keeps */
    PyObject *lm_score;    /* what scores words; NULL */
} decoder_object;

typedef struct decoding_object {
    PyObject_HEAD decoder_object *decoder;
    ds_ctc_stream stream;
    bool busy; /* a call without the GIL is using it; the GIL guards this */
} decoding_object;

/* ---------------------------------------------------------------- decoders */
/* A file as None, its path (str) or its bytes; `held` keeps the bytes until it is released. */
typedef struct given_text {
    ds_text text;
    PyObject *path;
    Py_buffer held;
} given_text;

static int take_text(PyObject *given, void *taken)
{
    given_text *t = taken;
    if (!given || given == Py_None)
        return 1;
    if (PyUnicode_Check(given)) {
        if (!PyUnicode_FSConverter(given, &t->path))
            return 0;
        t->text.path = PyBytes_AS_STRING(t->path);
        return 1;
    }
    if (PyObject_GetBuffer(given, &t->held, PyBUF_SIMPLE) < 0)
        return 0;
    t->text.bytes = t->held.len ? t->held.buf : "";
    t->text.n_bytes = (size_t)t->held.len;
    return 1;
}

/* ds_lm_score: calls back with the numbers of the words, as bytes. An exception stays set and ends the call; until then
 * nothing more is scored. */
static double score_words(void *owner, const uint32_t *words, size_t n_words)
{
    const PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *found = PyErr_Occurred()
                          ? NULL
                          : PyObject_CallFunction(owner, "y#", (const char *)words,
                                                  (Py_ssize_t)(n_words * sizeof *words));
    const double score = found ? PyFloat_AsDouble(found) : -1;
    Py_XDECREF(found);
    const bool failed = PyErr_Occurred() != NULL;
    PyGILState_Release(gil);
    return failed ? Py_NAN : score;
}

/* Raises a status, unless Python that was called back has raised already. */
static PyObject *raise_unless_raised(ds_module *m, ds_status status)
{
    return PyErr_Occurred() ? NULL : ds_raise(m, status, NULL);
}

typedef struct decoder_arguments {
    ds_decoder_options options;
    given_text texts[4];
    PyObject *networks[2], *lm_score;
} decoder_arguments;

static bool parse_decoder(ds_module *m, decoder_arguments *a, PyObject *args, PyObject *kwargs)
{
    /* clang-format off */
    static char *names[] = {
        "tokens", "lexicon", "lm", "hotwords", "sil", "blank", "greedy", "best_alignment",
        "lm_tokens", "unknown_words", "beam_size", "beam_size_token", "max_pending", "max_final",
        "hotword_weight", "beam_threshold", "token_threshold", "blank_threshold", "lm_weight",
        "word_score", "unk_score", "sil_score", "silence_frames", "trailing_frames",
        "utterance_frames", "predictor", "joiner", "max_symbols", "lm_order", "lm_score", NULL};
    /* clang-format on */
    ds_decoder_options *o = &a->options;
    long long silence = 0, trailing = 0, utterance = 0;
    const int parsed = PyArg_ParseTupleAndKeywords(
        args, kwargs, "O&|O&O&O&zippppIIIIddddddddLLLO!O!IIO:Decoder", names, take_text,
        &a->texts[0], take_text, &a->texts[1], take_text, &a->texts[2], take_text, &a->texts[3],
        &o->sil, &o->blank, &o->greedy, &o->best_alignment, &o->lm_tokens, &o->unknown_words,
        &o->beam_size, &o->beam_size_token, &o->max_pending, &o->max_final, &o->hotword_weight,
        &o->beam_threshold, &o->token_threshold, &o->blank_threshold, &o->lm_weight, &o->word_score,
        &o->unk_score, &o->sil_score, &silence, &trailing, &utterance, m->engine_type,
        &a->networks[0], m->engine_type, &a->networks[1], &o->max_symbols, &o->lm_order,
        &a->lm_score);
    o->tokens = a->texts[0].text;
    o->lexicon = a->texts[1].text;
    o->lm = a->texts[2].text;
    o->hotwords = a->texts[3].text;
    o->silence_frames = silence;
    o->trailing_frames = trailing;
    o->utterance_frames = utterance;
    o->lm_score = a->lm_score ? score_words : NULL;
    o->lm_owner = a->lm_score;
    return parsed != 0;
}

static ds_status open_decoder(decoder_object *self, const decoder_arguments *a)
{
    ds_scorer scorer;
    ds_status status = DS_OK;
    const bool transduces = a->networks[1] != NULL;
    for (int i = 0; transduces && i < 2; i++)
        self->networks[i] = Py_NewRef(a->networks[i]);
    self->lm_score = Py_XNewRef(a->lm_score);
    if (transduces)
        status = ds_transducer_scorer(&scorer, ((ds_engine_object *)a->networks[0])->engine,
                                      ((ds_engine_object *)a->networks[1])->engine);
    Py_BEGIN_ALLOW_THREADS;
    if (status == DS_OK)
        status = ds_ctc_create(&self->ctc, &a->options, transduces ? &scorer : NULL);
    Py_END_ALLOW_THREADS;
    return status;
}

static PyObject *decoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    ds_module *m = ds_module_of(type);
    decoder_arguments a = {.options = DS_DECODER_OPTIONS_INIT};
    const bool parsed = parse_decoder(m, &a, args, kwargs);
    PyObject *made = parsed ? type->tp_alloc(type, 0) : NULL;
    const ds_status status = made ? open_decoder((decoder_object *)made, &a) : DS_OK;
    if (status != DS_OK) {
        (void)raise_unless_raised(m, status);
        Py_CLEAR(made);
    }
    for (int i = 0; i < 4; i++) {
        Py_XDECREF(a.texts[i].path);
        if (a.texts[i].held.obj)
            PyBuffer_Release(&a.texts[i].held);
    }
    return made;
}

static void decoder_dealloc(PyObject *self)
{
    ds_ctc_destroy(((decoder_object *)self)->ctc);
    for (int i = 0; i < 2; i++)
        Py_XDECREF(((decoder_object *)self)->networks[i]);
    Py_XDECREF(((decoder_object *)self)->lm_score);
    ds_free_object(self);
}

static PyObject *build_text(const void *texts, size_t i)
{
    const ds_span *span = (const ds_span *)texts + i;
    return PyUnicode_DecodeUTF8(span->text, (Py_ssize_t)span->n, NULL);
}

/* clang-format off */
#define FACTS(X) \
    X(tokens, "The tokens' texts.", \
      ds_build_list((size_t)o->ctc->language.tokens.n, build_text, o->ctc->language.tokens.texts)) \
    X(words, "The words of the lexicon.", \
      ds_build_list(o->ctc->language.lexicon.n_words, build_text, o->ctc->language.lexicon.words)) \
    X(width, "Numbers of a frame that comes in.", PyLong_FromSize_t(ds_ctc_width(o->ctc))) \
    X(separator, "The token between words; -1: there is none.", PyLong_FromLong(o->ctc->language.separator))
/* clang-format on */
#define GETTER(name, doc, ...) DS_GETTER(name, decoder_object, __VA_ARGS__)
FACTS(GETTER)
static PyGetSetDef decoder_getset[] = {FACTS(DS_GETTER_ROW){NULL, NULL, NULL, NULL, NULL}};

/* ---------------------------------------------------------------- steps */
typedef struct decoder_step {
    ds_ctc_stream **streams;
    ds_input *chunks;
    uint32_t *flags;
    bool *bad;
    Py_ssize_t n, n_entered;
} decoder_step;

static int enter_row(ds_module *m, decoder_object *self, decoder_step *d, PyObject *rows,
                     Py_ssize_t i)
{
    PyObject *id, *stream, *array;
    unsigned int flags;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(rows, i), "UO!O!I", &id, m->decoding_type, &stream,
                          &PyArray_Type, &array, &flags))
        return -1;
    decoding_object *s = (decoding_object *)stream;
    PyArrayObject *a = (PyArrayObject *)array;
    const npy_intp shape[] = {-1, (npy_intp)ds_ctc_width(self->ctc)};
    DS_EXPECT(s->decoder == self, PyExc_ValueError, "a stream of another decoder");
    DS_EXPECT(ds_array_is(array, NPY_FLOAT32, 2, shape, false), PyExc_ValueError,
              "expected float32 scores (frames, tokens)");
    if (s->busy) {
        ds_engine_error(m, ds_fail(DS_BUSY, "another thread is using the stream"), id);
        return -1;
    }
    s->busy = true;
    d->n_entered++;
    d->streams[i] = &s->stream;
    d->chunks[i] = (ds_input){PyArray_DATA(a), (size_t)PyArray_DIM(a, 0), DS_F32};
    d->flags[i] = flags;
    return 0;
}

/* Raises what concerns the rows that are bad. */
static void refuse(ds_module *m, const decoder_step *d, ds_status status, PyObject *rows)
{
    DS_OWNED PyObject *ids = PyList_New(0);
    for (Py_ssize_t i = 0; ids && i < d->n; i++)
        if (d->bad[i])
            ds_append(&ids, Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(rows, i), 0)));
    if (ids)
        ds_raise(m, status, ids);
}

static ds_status make_room(decoder_step *d, ds_arena *arena)
{
    DS_PUSH_ZEROED(arena, d->streams, (size_t)d->n);
    DS_PUSH_ZEROED(arena, d->chunks, (size_t)d->n);
    DS_PUSH_ZEROED(arena, d->flags, (size_t)d->n);
    DS_PUSH_ZEROED(arena, d->bad, (size_t)d->n);
    return DS_OK;
}

static PyObject *decoder_step_rows(PyObject *self, PyObject *rows)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    if (!PyList_CheckExact(rows))
        return PyErr_Format(PyExc_TypeError, "expected a list of (id, stream, scores, flags)");
    const Py_ssize_t n = PyList_GET_SIZE(rows);
    ds_arena *arena = ds_take_arena(m);
    decoder_step d = {.n = n};
    ds_status status = arena ? make_room(&d, arena) : DS_NO_MEMORY;
    bool entered = status == DS_OK;
    for (Py_ssize_t i = 0; entered && i < n; i++)
        entered = enter_row(m, (decoder_object *)self, &d, rows, i) == 0;
    if (entered) {
        Py_BEGIN_ALLOW_THREADS;
        status = ds_ctc_step(((decoder_object *)self)->ctc, d.streams, d.chunks, d.flags, (size_t)n,
                             d.bad);
        Py_END_ALLOW_THREADS;
    }
    if (entered && status != DS_OK && !PyErr_Occurred())
        refuse(m, &d, status, rows);
    else if (!entered && !PyErr_Occurred())
        ds_raise(m, status, NULL);
    for (Py_ssize_t i = 0; i < d.n_entered; i++) {
        decoding_object *s = (decoding_object *)PyTuple_GET_ITEM(PyList_GET_ITEM(rows, i), 1);
        s->busy = false;
    }
    if (arena)
        ds_give_arena(m, arena);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef decoder_methods[] = {
    {"step", decoder_step_rows, METH_O,
     "step([(id, stream, scores, flags)]): advance the streams."},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(decoder, "Decoder", decoder_object, 0, "Tokens, words, language model and phrases.",
        {Py_tp_new, decoder_new}, {Py_tp_dealloc, decoder_dealloc},
        {Py_tp_methods, decoder_methods}, {Py_tp_getset, decoder_getset});

/* ---------------------------------------------------------------- streams */
static PyObject *decoding_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"decoder", NULL};
    ds_module *m = ds_module_of(type);
    PyObject *decoder;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!:Decoding", names, m->decoder_type, &decoder))
        return NULL;
    decoding_object *s = (decoding_object *)type->tp_alloc(type, 0);
    if (!s)
        return NULL;
    s->decoder = (decoder_object *)Py_NewRef(decoder);
    const ds_ctc *ctc = s->decoder->ctc;
    return ds_unless_failed(m, ds_ctc_open(&s->stream, ctc, &ctc->allocator), (PyObject *)s);
}

static void decoding_dealloc(PyObject *self)
{
    decoding_object *s = (decoding_object *)self;
    if (s->decoder)
        ds_ctc_close(&s->stream);
    Py_XDECREF((PyObject *)s->decoder);
    ds_free_object(self);
}

static bool is_idle(PyObject *self)
{
    if (!((decoding_object *)self)->busy)
        return true;
    ds_raise(ds_module_of(Py_TYPE(self)), ds_fail(DS_BUSY, "another thread is using the stream"),
             NULL);
    return false;
}

/* read(most): (final, left, frames, endpoints, [(score, bytes of ds_decoded_token)]). */
static PyObject *decoding_read(PyObject *self, PyObject *most)
{
    ds_module *m = ds_module_of(Py_TYPE(self));
    decoding_object *s = (decoding_object *)self;
    const size_t n = PyLong_AsSize_t(most);
    if (PyErr_Occurred() || !is_idle(self))
        return NULL;
    s->busy = true; /* what scores words may let other threads run */
    PyObject *list = PyList_New(0);
    ds_hypothesis h = {.n_hypotheses = 1}, best = h;
    for (size_t i = 0; list && i < n && i < h.n_hypotheses; i++) {
        const ds_status status = ds_ctc_read(s->decoder->ctc, &s->stream, &h, i);
        if (status != DS_OK) {
            Py_CLEAR(list);
            (void)raise_unless_raised(m, status);
            break;
        }
        if (i == 0)
            best = h;
        ds_append(&list, Py_BuildValue("dy#", h.score, h.n_tokens ? (const char *)h.tokens : "",
                                       (Py_ssize_t)(h.n_tokens * sizeof *h.tokens)));
    }
    s->busy = false;
    return list ? Py_BuildValue("nLLLN", (Py_ssize_t)best.n_final, (long long)best.n_left,
                                (long long)best.n_frames, (long long)best.n_endpoints, list)
                : NULL;
}

static PyObject *decoding_snapshot(PyObject *self, PyObject *Py_UNUSED(unused))
{
    decoding_object *s = (decoding_object *)self;
    size_t n_bytes;
    if (!is_idle(self))
        return NULL;
    ds_status status = ds_ctc_snapshot(s->decoder->ctc, &s->stream, NULL, &n_bytes);
    PyObject *bytes = status == DS_OK ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n_bytes) : NULL;
    if (bytes)
        status = ds_ctc_snapshot(s->decoder->ctc, &s->stream, PyBytes_AS_STRING(bytes), &n_bytes);
    return ds_unless_failed(ds_module_of(Py_TYPE(self)), status, bytes);
}

static PyObject *decoding_restore(PyObject *self, PyObject *bytes)
{
    decoding_object *s = (decoding_object *)self;
    Py_buffer view;
    if (!is_idle(self) || PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    s->busy = true;
    s->stream.reading.is_ranked = false;
    const ds_status status =
        ds_ctc_restore(s->decoder->ctc, &s->stream, view.buf, (size_t)view.len);
    s->busy = false;
    PyBuffer_Release(&view);
    if (status != DS_OK)
        return raise_unless_raised(ds_module_of(Py_TYPE(self)), status);
    Py_RETURN_NONE;
}

static PyMethodDef decoding_methods[] = {
    {"read", decoding_read, METH_O, "read(most): the best hypotheses."},
    {"snapshot", decoding_snapshot, METH_NOARGS, "What the stream remembers."},
    {"restore", decoding_restore, METH_O, "restore(bytes): go on from a snapshot."},
    {NULL, NULL, 0, NULL},
};

DS_SPEC(decoding, "Decoding", decoding_object, 0, "One stream of a decoder.",
        {Py_tp_new, decoding_new}, {Py_tp_dealloc, decoding_dealloc},
        {Py_tp_methods, decoding_methods});
