/* Values that operators refuse: looked at in all rows before any stream advances; graph inputs only. */
#include "exec_driver.h"
#include "main.h"

enum { ROWS = 4, WIDTH = 3 };

static const float table[ROWS * WIDTH] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static ds_status add_embedding(ds_graph *graph, int *y, int x)
{
    const ds_signature weight = {
        .dtype = DS_F32, .rank = 2, .shape = {ROWS, WIDTH}, .rate = {1, 1}};
    const void *data = table;
    return ds_graph_node(graph, y, ds_op_find("embedding"), NULL, 0, &x, 1, &weight, &data, 1,
                         NULL);
}

/* Indices, looked up and delayed by a frame. */
static graph_case make_case(void)
{
    graph_case c = new_case();
    const ds_signature in = {.dtype = DS_I64, .rate = {1, 1}};
    int x = 0, y = 0;
    CHECK(ds_graph_input(c.graph, &x, &in) == DS_OK);
    CHECK(add_embedding(c.graph, &y, x) == DS_OK);
    add_output(&c, add_shift(&c, "slice", y, "start", 1, "crop", 1));
    return c;
}

static ds_status step(runner *r, ds_slot **slots, int64_t x[][2], bool *bad, size_t n_rows)
{
    const int64_t n_frames[] = {2, 2, 2};
    const bool ended[] = {false, false, false};
    CHECK(begin_rows(r->batch, slots, n_frames, ended, bad, n_rows) == DS_OK);
    for (size_t row = 0; row < n_rows; row++)
        memcpy(ds_step_room(r->batch, 0, row), x[row], sizeof x[row]);
    const ds_status status = ds_step_check(r->batch);
    memcpy(bad, r->batch->bad, n_rows * sizeof *bad);
    if (status == DS_OK)
        ds_step_run(r->batch);
    return status;
}

static void check_row(const runner *r, size_t row, const int64_t *indices, int64_t n, int64_t start)
{
    int64_t at;
    CHECK(ds_step_frames(r->batch, 0, row, &at) == n && at == start);
    const float *y = ds_step_values(r->batch, 0, row);
    for (int64_t f = 0; f < n; f++)
        CHECK(memcmp(y + f * WIDTH, table + indices[f] * WIDTH, WIDTH * sizeof *y) == 0);
}

static void try_all_or_nothing(size_t n_threads)
{
    graph_case c = make_case();
    runner r = make_runner(&c, best_kernels(), 0, n_threads, 0);
    ds_slot *slots[3];
    bool bad[3];
    for (size_t k = 0; k < 3; k++)
        CHECK(ds_session_open(r.session, &slots[k], 0) == DS_OK);
    int64_t first[][2] = {{0, 1}, {2, 3}, {3, 0}};
    CHECK(step(&r, slots, first, bad, 3) == DS_OK);
    int64_t wrong[][2] = {{1, 2}, {0, ROWS}, {-1, 0}};
    CHECK(failed(step(&r, slots, wrong, bad, 3), DS_INDEX,
                 "embedding: index 4 is out of range, expected 0 to 3"));
    CHECK(!bad[0] && bad[1] && bad[2]);
    int64_t extreme[][2] = {{INT64_MIN, 2}, {0, 1}, {3, INT64_MAX}};
    CHECK(failed(step(&r, slots, extreme, bad, 3), DS_INDEX, "index -9223372036854775808 is"));
    CHECK(bad[0] && !bad[1] && bad[2]);
    int64_t second[][2] = {{3, 1}, {1, 2}, {0, 0}}; /* goes on from the first call */
    CHECK(step(&r, slots, second, bad, 3) == DS_OK);
    check_row(&r, 0, (const int64_t[]){1, 3}, 2, 0);
    check_row(&r, 1, (const int64_t[]){3, 1}, 2, 0);
    check_row(&r, 2, (const int64_t[]){0, 0}, 2, 0);
    close_runner(&r);
}

TEST(all_or_nothing)
{
    try_all_or_nothing(1);
    try_all_or_nothing(2);
}

/* An index that another node makes can't be looked at in time: nor is it refused. */
TEST(computed)
{
    graph_case c = new_case();
    const int x = add_input(&c, 1, 1, 1);
    const ds_attr to = {.name = "to", .kind = DS_ATTR_CHOICE, .text = "int64"};
    int whole = 0, y = 0;
    CHECK(ds_graph_node(c.graph, &whole, ds_op_find("cast"), &to, 1, &x, 1, NULL, NULL, 0, NULL) ==
          DS_OK);
    CHECK(add_embedding(c.graph, &y, whole) == DS_OK && c.graph->n_nodes == 2);
    CHECK(!ds_node_checks(c.graph, &c.graph->nodes[1]));
    ds_graph_destroy(c.graph);
}

/* A node that nothing uses is dropped, but not what it refuses. */
TEST(unused)
{
    graph_case c = new_case();
    const ds_signature in = {.dtype = DS_I64, .rate = {1, 1}};
    int x = 0, y = 0;
    CHECK(ds_graph_input(c.graph, &x, &in) == DS_OK);
    CHECK(add_embedding(c.graph, &y, x) == DS_OK);
    add_output(&c, add_shift(&c, "slice", x, "start", 1, "crop", 0));
    runner r = make_runner(&c, best_kernels(), 0, 1, 0);
    ds_slot *slot;
    bool bad;
    CHECK(ds_session_open(r.session, &slot, 0) == DS_OK);
    int64_t wrong[][2] = {{1, ROWS}}, good[][2] = {{1, 2}};
    CHECK(failed(step(&r, &slot, wrong, &bad, 1), DS_INDEX, "index 4"));
    CHECK(bad && step(&r, &slot, good, &bad, 1) == DS_OK);
    close_runner(&r);
}
