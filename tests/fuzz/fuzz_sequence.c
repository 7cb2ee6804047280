/*
 * The public API: bytes are read as a sequence of calls on streams of two loads of one model, by the plain
 * backend and by the best one. Beside each stream stands what it should be: the frames that it has taken and
 * those that it gave. Whatever the detours, these are what a fresh stream gives for the same frames in one
 * chunk; and what has to be refused is refused, with nothing changed.
 */
#include "api_driver.h"
#include "fuzz.h"

enum { N_STREAMS = 6, N_SAVED = 3, MOST_FRAMES = 400, N_OUTPUTS = 3, MOST_CALLS = 200 };

static const size_t out_bytes[N_OUTPUTS] = {16, 12, 8};

/* What a stream should be. */
typedef struct life {
    float x[MOST_FRAMES];
    size_t n, n_out[N_OUTPUTS]; /* frames */
    char out[N_OUTPUTS][MOST_FRAMES * 16];
    bool begun, ended;
} life;

typedef struct saved {
    char *bytes; /* NULL: none */
    size_t n_bytes;
    life life;
} saved;

/* The bytes that say what to do; zeros once they are used up. */
typedef struct script {
    const uint8_t *data;
    size_t n;
} script;

static ds_model *models[2];
static ds_stream *streams[N_STREAMS]; /* of models[i % 2]; NULL: not open */
static life lives[N_STREAMS];
static saved saves[N_SAVED];

static uint8_t next(script *s)
{
    if (s->n == 0)
        return 0;
    s->n--;
    return *s->data++;
}

/* Windows of 4 frames every 2; a residual that looks ahead; a strided convolution and an LSTM; and, waiting
 * for the end, a circular convolution. */
static void make_models(void)
{
    if (models[0] != NULL)
        return;
    ds_fault_init(&fault);
    hooks = ds_fault_hooks(&fault);
    random_state = 77;
    graph_case c = new_case();
    const int x = add_shift(&c, "frame", add_port(&c, DS_F32, 0, 0), "size", 4, "step", 2);
    const int y = add_combined(&c, "add", x, add_padded_conv(&c, x, 4, 3, 1, 1, 1, 1, "zeros"));
    add_output(&c, y);
    add_output(&c, add_lstm(&c, add_conv(&c, y, 2, 3, 2), 3, false));
    add_output(&c, add_padded_conv(&c, y, 2, 3, 1, 1, 1, 1, "circular"));
    ds_buffer file = take_graph(&c, 0);
    models[0] = load_with(&file, "ref", 1);
    models[1] = load_with(&file, NULL, 1); /* threads have a test of their own */
    ds_buffer_free(&file);
}

/* ---------------------------------------------------------------- what a stream should be */

static void forget_life(life *l)
{
    l->n = 0;
    memset(l->n_out, 0, sizeof l->n_out);
    l->begun = l->ended = false;
}

/* Appends what a step gave. */
static void take_outputs(life *l, const ds_output *out)
{
    for (size_t o = 0; o < N_OUTPUTS; o++) {
        FUZZ_CHECK(out[o].data != NULL && out[o].start == (int64_t)l->n_out[o]);
        FUZZ_CHECK(l->n_out[o] + out[o].n_frames <= MOST_FRAMES);
        memcpy(l->out[o] + l->n_out[o] * out_bytes[o], out[o].data, out[o].n_frames * out_bytes[o]);
        l->n_out[o] += out[o].n_frames;
    }
}

/* Whether the stream has given what a fresh one gives for its frames in one chunk, early and late. */
static void check_life(const life *l)
{
    static life whole;
    ds_stream *fresh = open_stream(models[0]);
    ds_output out[N_OUTPUTS];
    const ds_input in = {l->x, l->n, 0};
    forget_life(&whole);
    FUZZ_CHECK(ds_stream_step(fresh, out, &in, l->ended ? DS_END : 0) == DS_OK);
    take_outputs(&whole, out);
    for (size_t o = 0; o < N_OUTPUTS; o++) {
        FUZZ_CHECK(whole.n_out[o] == l->n_out[o]);
        FUZZ_CHECK(memcmp(whole.out[o], l->out[o], l->n_out[o] * out_bytes[o]) == 0);
    }
    FUZZ_CHECK(ds_stream_close(fresh) == DS_OK);
}

static void check_query(size_t i, bool refused)
{
    const ds_stream_info info = stream_info_of(streams[i]);
    int64_t frames = -1;
    FUZZ_CHECK(info.begun == lives[i].begun && info.ended == lives[i].ended &&
               info.refused == refused);
    FUZZ_CHECK(info.model == models[i % 2] && info.idle_seconds >= 0);
    FUZZ_CHECK(ds_stream_frames(streams[i], 0, &frames) == DS_OK);
    FUZZ_CHECK(frames == (lives[i].ended ? 0 : (int64_t)lives[i].n));
}

/* ---------------------------------------------------------------- the calls */

/* One chunk of one stream; what is to come of it. */
typedef struct chunk {
    float x[64];
    ds_input in;
    uint32_t flags;
    ds_status status;
} chunk;

static chunk make_chunk(script *s, size_t i)
{
    chunk c = {.flags = next(s) >> 3 & 31};
    const size_t n = next(s) % 64, seed = next(s), have = lives[i].ended ? 0 : lives[i].n;
    c.flags =
        c.flags > 7 ? c.flags & 1 ? DS_END : 0 : c.flags; /* rarely a start, or what is no flag */
    c.in.n_frames = n < MOST_FRAMES - have ? n : MOST_FRAMES - have;
    for (size_t k = 0; k < c.in.n_frames; k++)
        c.x[k] = (float)((seed * 29 + (have + k) * 53) % 251) / 64.0f - 2.0f;
    const bool wrong_start = (c.flags & DS_START) != 0 && lives[i].begun && !lives[i].ended;
    const bool wrong_end = (c.flags & DS_START) == 0 && lives[i].ended;
    c.status = c.flags > 3 ? DS_ARGUMENT : wrong_start || wrong_end ? DS_STREAM_ID : DS_OK;
    return c;
}

static void advance(size_t i, const chunk *c, const ds_output *out)
{
    life *l = &lives[i];
    if ((c->flags & DS_START) != 0)
        forget_life(l);
    memcpy(l->x + l->n, c->x, c->in.n_frames * sizeof *c->x);
    l->n += c->in.n_frames;
    l->begun = true;
    l->ended = (c->flags & DS_END) != 0;
    take_outputs(l, out);
    if (l->ended)
        check_life(l);
}

static void step_one(script *s, size_t i)
{
    chunk c = make_chunk(s, i);
    c.in.data = c.x;
    ds_output out[N_OUTPUTS];
    FUZZ_CHECK(ds_stream_step(streams[i], out, &c.in, c.flags) == c.status);
    if (c.status == DS_OK)
        advance(i, &c, out);
    check_query(i, c.status != DS_OK);
}

/* Some streams of one model; with `foreign` one of the other. */
static void step_batch(script *s)
{
    const uint8_t mask = next(s);
    const size_t m = mask >> 7;
    ds_stream *batch[N_STREAMS];
    size_t row_of[N_STREAMS], n = 0;
    static chunk chunks[N_STREAMS];
    ds_input in[N_STREAMS];
    ds_output out[N_STREAMS * N_OUTPUTS];
    uint32_t flags[N_STREAMS];
    ds_status want = DS_OK;
    bool foreign = false;
    for (size_t i = 0; i < N_STREAMS; i++) {
        if (streams[i] == NULL || (mask >> i & 1) == 0)
            continue;
        if (i % 2 != m && (mask & 64) == 0)
            continue;
        foreign = foreign || i % 2 != m;
        chunks[n] = make_chunk(s, i);
        chunks[n].in.data = chunks[n].x;
        in[n] = chunks[n].in;
        flags[n] = chunks[n].flags;
        want = want == DS_OK ? chunks[n].status : want;
        batch[n] = streams[i];
        row_of[n++] = i;
    }
    if (foreign) {
        FUZZ_CHECK(ds_model_step(models[m], batch, out, in, flags, n) == DS_ARGUMENT);
        return;
    }
    FUZZ_CHECK(ds_model_step(models[m], batch, out, in, flags, n) == want);
    for (size_t k = 0; k < n; k++) {
        if (want == DS_OK)
            advance(row_of[k], &chunks[k], &out[k * N_OUTPUTS]);
        check_query(row_of[k], chunks[k].status != DS_OK);
    }
}

static void finish(size_t i)
{
    ds_output out[N_OUTPUTS];
    const chunk nothing = {.flags = DS_END};
    const bool again = lives[i].ended;
    FUZZ_CHECK(ds_stream_finish(streams[i], out) == (again ? DS_STREAM_ID : DS_OK));
    if (!again)
        advance(i, &nothing, out);
    check_query(i, again);
}

static void save(size_t i, saved *to)
{
    size_t n = 0;
    const ds_status status = ds_stream_snapshot_size(streams[i], &n);
    FUZZ_CHECK(status == (lives[i].ended ? DS_STREAM_ID : DS_OK));
    if (status == DS_OK) {
        free(to->bytes);
        to->bytes = snapshot_of(streams[i], &to->n_bytes);
        to->life = lives[i];
        to->life.begun = lives[i].n > 0;
        FUZZ_CHECK(to->n_bytes == n);
    }
}

static void restore(size_t i, const saved *from)
{
    if (from->bytes == NULL)
        return;
    FUZZ_CHECK(ds_stream_restore(streams[i], from->bytes, from->n_bytes) == DS_OK);
    lives[i] = from->life;
    FUZZ_CHECK(same_state(streams[i], from->bytes, from->n_bytes));
    check_query(i, false);
}

/* One byte is another, or the end is missing. */
static void restore_damaged(script *s, size_t i, const saved *from)
{
    const size_t at = (size_t)next(s) << 8 | next(s);
    const uint8_t change = next(s);
    if (from->bytes == NULL)
        return;
    size_t n_bytes = from->n_bytes;
    char *bytes = fresh_memory(n_bytes);
    memcpy(bytes, from->bytes, n_bytes);
    if (change == 0)
        n_bytes = at % n_bytes;
    else
        bytes[at % n_bytes] = (char)(bytes[at % n_bytes] ^ change);
    FUZZ_CHECK(ds_stream_restore(streams[i], bytes, n_bytes) == DS_FORMAT);
    free(bytes);
}

/* A new stream in place i, empty or a copy of stream `from`; there is room for as many as there are places. */
static void open_at(size_t i, size_t from)
{
    if (streams[i] != NULL)
        return;
    if (from < N_STREAMS && streams[from] != NULL && from % 2 == i % 2) {
        FUZZ_CHECK(ds_stream_fork(&streams[i], streams[from]) == DS_OK);
        lives[i] = lives[from];
    } else {
        FUZZ_CHECK(ds_stream_open(&streams[i], models[i % 2]) == DS_OK);
        forget_life(&lives[i]);
    }
    check_query(i, false);
}

static void close_at(size_t i)
{
    check_life(&lives[i]);
    FUZZ_CHECK(ds_stream_close(streams[i]) == DS_OK);
    FUZZ_CHECK(ds_stream_reset(streams[i]) == DS_CLOSED &&
               ds_stream_close(streams[i]) == DS_CLOSED);
    streams[i] = NULL;
}

static void ask_idle(size_t m)
{
    ds_stream *found[N_STREAMS];
    size_t n = 0, n_open = 0;
    for (size_t i = m; i < N_STREAMS; i += 2)
        n_open += streams[i] != NULL;
    FUZZ_CHECK(ds_model_idle(models[m], 0, found, N_STREAMS, &n) == DS_OK && n == n_open);
    for (size_t k = 0; k < n; k++) {
        size_t i = m;
        while (i < N_STREAMS && streams[i] != found[k])
            i += 2;
        FUZZ_CHECK(i < N_STREAMS);
    }
    FUZZ_CHECK(info_of(models[m]).n_streams == n_open);
}

static void call_once(script *s)
{
    const uint8_t what = next(s);
    const size_t i = what / 16 % N_STREAMS;
    if (streams[i] == NULL && what % 16 != 8 && what % 16 != 9) {
        open_at(i, N_STREAMS);
        return;
    }
    switch (what % 16) {
    case 0:
        finish(i);
        break;
    case 1:
        FUZZ_CHECK(ds_stream_reset(streams[i]) == DS_OK);
        forget_life(&lives[i]);
        check_query(i, false);
        break;
    case 2:
        save(i, &saves[next(s) % N_SAVED]);
        break;
    case 3:
        restore(i, &saves[next(s) % N_SAVED]);
        break;
    case 4:
        restore_damaged(s, i, &saves[next(s) % N_SAVED]);
        break;
    case 5:
        open_at(next(s) % N_STREAMS, i);
        break;
    case 6:
        close_at(i);
        break;
    case 7:
        ask_idle(i % 2);
        break;
    case 8:
    case 9:
        step_batch(s);
        break;
    default:
        step_one(s, i);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static size_t n_blocks;
    make_models();
    script s = {data, n_bytes};
    for (int n = 0; s.n > 0 && n < MOST_CALLS; n++)
        call_once(&s);
    for (size_t i = 0; i < N_STREAMS; i++)
        if (streams[i] != NULL)
            close_at(i);
    for (size_t k = 0; k < N_SAVED; k++) {
        free(saves[k].bytes);
        saves[k].bytes = NULL;
    }
    for (size_t m = 0; m < 2; m++)
        FUZZ_CHECK(info_of(models[m]).n_streams == 0);
    /* What stays is room for further streams and calls: it has an end. */
    const size_t held = memory_of(models[0]).blocks + memory_of(models[1]).blocks;
    n_blocks = n_blocks == 0 ? held : n_blocks;
    FUZZ_CHECK(held < n_blocks + 200);
    return 0;
}
