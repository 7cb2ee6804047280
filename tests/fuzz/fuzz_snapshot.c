/*
 * Snapshots: what is taken leaves a stream that goes on as any other, and reads as what was given; what is
 * refused leaves the stream that it was meant for alone.
 *
 * byte 0  bit 0: which graph; then  0: edits of a snapshot  2: the bytes of one  4: the same, with magic,
 *         length, fingerprint and checksum put right
 * edits: byte 1: frames so far; byte 2: not 0: as many periods into the future, as a power of two; then
 * four bytes each: where (2), what, and the value
 */
#include "exec_driver.h"
#include "fuzz.h"
#include "snapshot_tools.h"

enum { N_GRAPHS = 2 };

static runner runners[N_GRAPHS];

/* Samples framed, convolved, remembered and averaged; indices that are kept and looked up; what waits for
 * the end. The second: a table by position, and inputs of two rates. */
static graph_case make_graph(int which)
{
    random_state = 7;
    graph_case c = new_case();
    if (which == 1) {
        const int x = add_input(&c, 2, 2, 1), y = add_input(&c, 3, 1, 1);
        const ds_signature rows = {.dtype = DS_F32, .rank = 2, .shape = {100, 3}, .rate = {0, 1}};
        const int table = add_node(&c, ds_op_find("table"), NULL, 0, &y, 1, &rows, 1);
        const int slow = add_padded_conv(&c, x, 3, 4, 2, 1, 1, 2, "reflect");
        const int sum = add_combined(&c, "add", y, table);
        add_output(&c, add_lstm(&c, add_combined(&c, "add", slow, sum), 2, false));
        add_output(&c, add_reduction(&c, add_transposed(&c, sum, 2, 5, 3), "mean"));
        return c;
    }
    const int x = add_input(&c, 2, 1, 1);
    const ds_signature index = {.dtype = DS_I64, .rank = 0, .rate = {1, 1}};
    int ids = -1;
    CHECK(ds_graph_input(c.graph, &ids, &index) == DS_OK);
    const int framed = add_shift(&c, "frame", x, "size", 5, "step", 3);
    const ds_attr ints = {
        .name = "shape", .kind = DS_ATTR_INTS, .value = {.ints = {10}, .n_ints = 1}};
    const int flat = add_node(&c, ds_op_find("reshape"), &ints, 1, &framed, 1, NULL, 0);
    const ds_attr mean = text_attr("kind", "mean");
    const int lstm = add_lstm(&c, add_conv(&c, flat, 3, 3, 2), 2, false);
    add_output(&c, add_node(&c, ds_op_find("cumulative"), &mean, 1, &lstm, 1, NULL, 0));
    const ds_signature rows = {.dtype = DS_F32, .rank = 2, .shape = {6, 2}, .rate = {0, 1}};
    const int found = add_node(&c, ds_op_find("embedding"), NULL, 0, &ids, 1, &rows, 1);
    add_output(
        &c, add_combined(&c, "add", add_padded_conv(&c, x, 2, 3, 1, 2, 2, 2, "replicate"), found));
    add_output(&c, add_shift(&c, "delay", ids, "frames", 4, NULL, 0));
    add_output(&c, add_padded_conv(&c, x, 1, 3, 1, 1, 1, 1, "circular"));
    return c;
}

static runner *runner_of(int which)
{
    runner *r = &runners[which];
    if (r->plan == NULL) {
        ds_fault_init(&fault);
        hooks = *ds_default_allocator();
        graph_case c = make_graph(which);
        *r = make_runner(&c, ds_kernels_for(DS_ISA_REF), 0, 1, 0);
    }
    return r;
}

/* Steps a stream by n frames (of the slowest input); the outputs' bytes are hashed into *hash. False where the
 * call is refused: a table's end, the last position. */
static bool step(runner *r, ds_slot *slot, int64_t n, bool ended, uint64_t *hash)
{
    const ds_graph *g = r->plan->graph;
    int64_t n_frames[DS_MAX_INPUTS];
    bool bad;
    for (size_t i = 0; i < g->n_inputs; i++)
        n_frames[i] = n * g->edges[g->inputs[i]].signature.rate.num;
    const ds_status status = begin_rows(r->batch, &slot, n_frames, &ended, &bad, 1);
    FUZZ_CHECK(status == DS_OK || status == DS_SHAPE || status == DS_ARGUMENT);
    if (status != DS_OK) {
        FUZZ_CHECK(bad);
        return false;
    }
    for (size_t i = 0; i < g->n_inputs; i++) {
        const ds_signature *s = &g->edges[g->inputs[i]].signature;
        const int64_t n_elements = n_frames[i] * ds_signature_elements(s);
        void *to = ds_step_room(r->batch, i, 0);
        for (int64_t k = 0; k < n_elements; k++)
            if (s->dtype == DS_I64)
                ((int64_t *)to)[k] = k % 6;
            else
                ((float *)to)[k] = (float)(k % 13) - 6.0f;
    }
    FUZZ_CHECK(ds_step_check(r->batch) == DS_OK);
    ds_step_run(r->batch);
    for (size_t o = 0; o < g->n_outputs; o++) {
        int64_t start;
        const int64_t n_out = ds_step_frames(r->batch, o, 0, &start);
        const size_t n_bytes =
            (size_t)n_out * ds_signature_bytes(&g->edges[g->outputs[o]].signature);
        const unsigned char *y = ds_step_values(r->batch, o, 0);
        FUZZ_CHECK(n_out >= 0 && start >= 0);
        for (size_t k = 0; k < n_bytes; k++)
            *hash = (*hash ^ y[k]) * UINT64_C(0x100000001B3);
        *hash = (*hash ^ (uint64_t)start) * UINT64_C(0x100000001B3);
    }
    return true;
}

static ds_slot *open_slot(runner *r)
{
    ds_slot *slot = NULL;
    FUZZ_CHECK(ds_session_open(r->session, &slot, 0) == DS_OK);
    return slot;
}

static bool is_state(const runner *r, const ds_slot *slot, const char *state, size_t n)
{
    char *now;
    const size_t n_now = copy_state(r, slot, &now);
    const bool same = n_now == n && memcmp(now, state, n) == 0;
    free(now);
    return same;
}

/* Two streams from one state, in step. */
static void go_on(runner *r, ds_slot *a, unsigned seed)
{
    ds_slot *b = open_slot(r);
    char *state;
    bool going = true;
    for (int k = 0; k < 4 && going; k++, seed = seed * 5 + 3) {
        const size_t n = copy_state(r, a, &state);
        FUZZ_CHECK(ds_slot_restore(r->plan, b, state, n) ==
                   DS_OK); /* into an open one that went elsewhere */
        FUZZ_CHECK(is_state(r, b, state, n));
        uint64_t hash_a = 0, hash_b = 0;
        const int64_t n_frames = seed % 9;
        going = step(r, a, n_frames, k == 3, &hash_a);
        FUZZ_CHECK(step(r, b, n_frames, k == 3, &hash_b) == going && hash_a == hash_b);
        FUZZ_CHECK(going || is_state(r, a, state, n));
        free(state);
    }
    ds_session_close(r->session, b);
}

static void try_snapshot(runner *r, const char *data, size_t n_bytes, unsigned seed)
{
    ds_slot *slot = open_slot(r);
    char *before;
    uint64_t hash = 0;
    FUZZ_CHECK(step(r, slot, seed % 8, false, &hash));
    const size_t n_before = copy_state(r, slot, &before);
    const ds_status status = ds_slot_restore(r->plan, slot, data, n_bytes);
    if (status == DS_OK) {
        FUZZ_CHECK(is_state(r, slot, data, n_bytes));
        go_on(r, slot, seed);
    } else {
        fuzz_check_refusal(status);
        FUZZ_CHECK(is_state(r, slot, before, n_before));
    }
    free(before);
    ds_session_close(r->session, slot);
}

/* A snapshot that this program takes. */
static size_t take_snapshot(runner *r, int64_t n_frames, unsigned ahead, char **state)
{
    ds_slot *slot = open_slot(r);
    uint64_t hash = 0;
    FUZZ_CHECK(step(r, slot, n_frames, false, &hash));
    const size_t n = copy_state(r, slot, state);
    ds_session_close(r->session, slot);
    if (ahead > 0 && r == &runners[0]) /* the other has a table's end */
        FUZZ_CHECK(shift_snapshot(r->plan, *state, n, r->plan->analysis.period << ahead % 58));
    return n;
}

static void edit(char *state, size_t n, const uint8_t *edits, size_t n_edits)
{
    static const uint64_t words[] = {0,
                                     1,
                                     2,
                                     5,
                                     6,
                                     7,
                                     UINT64_MAX,
                                     UINT64_MAX - 1,
                                     (uint64_t)INT64_MIN,
                                     INT64_MAX,
                                     (uint64_t)1 << 31,
                                     (uint64_t)1 << 32,
                                     (uint64_t)1 << 60,
                                     (uint64_t)1 << 53,
                                     0x7F800000,
                                     0x7FC000007FC00000};
    for (size_t k = 0; k < n_edits; k++, edits += 4) {
        const size_t at = (edits[0] + 256u * edits[1]) % n;
        if (edits[2] % 3 == 0) {
            state[at] = (char)edits[3];
        } else if (edits[2] % 3 == 1) {
            set_word(state, at / 8 * 8, words[edits[3] % (sizeof words / sizeof *words)]);
        } else {
            set_word(state, at / 8 * 8,
                     word_at(state, at / 8 * 8) + (uint64_t)((int64_t)edits[3] - 128));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes < 3)
        return 0;
    runner *r = runner_of(data[0] % N_GRAPHS);
    const unsigned how = data[0] / 2 % 3;
    if (how == 0) {
        char *state;
        const size_t n = take_snapshot(r, data[1] % 100, data[2], &state);
        edit(state, n, data + 3, (n_bytes - 3) / 4);
        seal_snapshot(state, n);
        try_snapshot(r, state, n, data[1] + 7u * data[2]);
        free(state);
        return 0;
    }
    const size_t n = n_bytes - 1;
    char *copy = malloc(n);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data + 1, n);
    if (how == 2 && n >= 48 && n % 8 == 0) {
        memcpy(copy, "DSSTATE1", 8);
        set_word(copy, 16, r->plan->fingerprint[0]);
        set_word(copy, 24, r->plan->fingerprint[1]);
        seal_snapshot(copy, n);
    }
    try_snapshot(r, copy, n, (unsigned)n);
    free(copy);
    return 0;
}
