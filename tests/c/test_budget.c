/* exec/budget: what asks for more memory than it may is refused before it gets any, models and calls; what is counted is
 * about what is taken. */
#include "exec_driver.h"
#include "main.h"

typedef int (*make_node)(graph_case *c, int x, int64_t n);

static int make_pad(graph_case *c, int x, int64_t n)
{
    return add_shift(c, "pad", x, "left", n, "right", n);
}

static int make_delay(graph_case *c, int x, int64_t n)
{
    return add_shift(c, "delay", x, "frames", n, NULL, 0);
}

static int make_crop(graph_case *c, int x, int64_t n)
{
    return add_shift(c, "slice", x, "start", 0, "crop", n);
}

static int make_repeats(graph_case *c, int x, int64_t n)
{
    return add_shift(c, "repeat_frames", x, "times", n / 2, NULL, 0);
}

/* Windows that are far apart: the frames between them are kept. */
static int make_windows(graph_case *c, int x, int64_t n)
{
    const ds_attr attrs[] = {int_attr("size", 2), int_attr("step", 1), int_attr("dilation", n)};
    return add_node(c, ds_op_find("frame"), attrs, 3, &x, 1, NULL, 0);
}

static int make_wide(graph_case *c, int x, int64_t n)
{
    const int64_t to[] = {n};
    ds_attr shape = {.name = "shape", .kind = DS_ATTR_INTS, .value.n_ints = 1};
    memcpy(shape.value.ints, to, sizeof to);
    return add_node(c, ds_op_find("expand"), &shape, 1, &x, 1, NULL, 0);
}

/* Many, each with a table. */
static int make_transforms(graph_case *c, int x, int64_t n)
{
    const int64_t size = n < (int64_t)1 << 24 ? n : (int64_t)1 << 24;
    const int wide = make_wide(c, x, size);
    int y = -1;
    for (int64_t i = 0; i < n; i += size) {
        const int real = add_node(c, ds_op_find("rfft"), NULL, 0, &wide, 1, NULL, 0);
        y = y < 0 ? real : add_combined(c, "add", y, real);
    }
    return y;
}

static const struct {
    const char *name;
    make_node make;
} kinds[] = {{"pad", make_pad},        {"delay", make_delay},
             {"slice", make_crop},     {"repeat_frames", make_repeats},
             {"frame", make_windows},  {"expand", make_wide},
             {"rfft", make_transforms}};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static graph_case case_of(size_t kind, int64_t n)
{
    graph_case c = new_case();
    add_output(&c, kinds[kind].make(&c, add_input(&c, 1, 1, 1), n));
    CHECK(c.status == DS_OK);
    return c;
}

/* 2^30 frames of four bytes, or as many numbers. */
TEST(refused_before_it_is_made)
{
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        graph_case c = case_of(kind, (int64_t)1 << 30);
        ds_plan *plan = NULL;
        CHECK(failed(ds_plan_create(&plan, c.graph, best_kernels(), 0, 0), DS_LIMIT,
                     "unless max_bytes says otherwise"));
        CHECK(plan == NULL && ds_fault_live_blocks(&fault) == 0);
        if (kinds[kind].make != make_transforms)
            CHECK(strstr(ds_last_error(), kinds[kind].name) != NULL);
    }
    CHECK(ds_fault_peak_bytes(&fault) < (size_t)8 << 20);
}

/* One stream, one frame, the end. */
static void step_once(runner *r)
{
    ds_slot *slot;
    const int64_t n = 1;
    const bool ended = true;
    bool bad;
    CHECK(ds_session_open(r->session, &slot, 0) == DS_OK);
    CHECK_OK(begin_rows(r->batch, &slot, &n, &ended, &bad, 1));
    *(float *)ds_step_room(r->batch, 0, 0) = 1;
    ds_step_run(r->batch);
    ds_session_close(r->session, slot);
}

static runner run_plan(ds_plan *plan)
{
    runner r = {.plan = plan};
    CHECK(ds_session_create(&r.session, plan, 0) == DS_OK);
    CHECK(ds_step_create(&r.batch, plan, NULL) == DS_OK);
    return r;
}

TEST(counted_as_taken)
{
    const int64_t n = 1 << 21;
    const size_t besides = (size_t)2 << 20; /* what every plan and step takes */
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        graph_case c = case_of(kind, n);
        runner r = run_plan(plan_within(&c, best_kernels(), 0, 0));
        const size_t counted = r.plan->budget.n_bytes;
        step_once(&r);
        const size_t taken = ds_fault_live_bytes(&fault);
        CHECK(taken < 2 * counted + besides && counted < 4 * taken + besides);
        close_runner(&r);
        c = case_of(kind, n); /* that many are enough, and no less */
        r = run_plan(plan_within(&c, best_kernels(), 0, counted));
        step_once(&r);
        close_runner(&r);
        c = case_of(kind, n);
        CHECK(failed(ds_plan_create(&r.plan, c.graph, best_kernels(), 0, counted - 1), DS_LIMIT,
                     "max_bytes"));
    }
}

/* Weights count as they are packed: of many nodes that have one, once. */
TEST(weights)
{
    graph_case c = new_case();
    add_output(&c, add_linear(&c, add_input(&c, 100, 1, 1), 1000));
    ds_plan *plan = plan_within(&c, best_kernels(), 0, 0);
    const size_t counted = plan->budget.n_bytes,
                 packed = plan->prepared_bytes + plan->elements_bytes;
    CHECK(counted >= packed && counted < packed + (1 << 16));
    CHECK(plan->kernels->isa == DS_ISA_REF || packed >= 400000);
    CHECK(plan->budget.max_bytes == ((size_t)1 << 31) + 4 * 400000);
    ds_plan_destroy(plan);
}

/* A call's rows are added up, and those that want most are to blame; nothing has happened. */
TEST(calls)
{
    for (size_t n_threads = 1; n_threads <= 2; n_threads++) {
        graph_case c = case_of(3, 2000);
        runner r = run_plan(plan_within(&c, best_kernels(), 0, 1 << 20));
        CHECK(n_threads == 1 || ds_pool_create(&r.pool, &hooks, n_threads) == DS_OK);
        r.batch->pool = r.pool;
        ds_slot *slots[2];
        CHECK(ds_session_open(r.session, &slots[0], 0) == DS_OK);
        CHECK(ds_session_open(r.session, &slots[1], 0) == DS_OK);
        const bool ended[2] = {false, false};
        bool bad[2];
        const int64_t much[] = {2, 4000}, less[] = {2, 3};
        CHECK(failed(begin_rows(r.batch, slots, much, ended, bad, 2), DS_LIMIT,
                     "max_bytes is 1048576"));
        CHECK(!bad[0] && bad[1]);
        CHECK(strstr(ds_last_error(), "repeat_frames") != NULL);
        CHECK_OK(begin_rows(r.batch, slots, less, ended, bad, 2));
        ds_step_run(r.batch);
        int64_t start;
        CHECK(ds_step_frames(r.batch, 0, 1, &start) == 3000 && start == 0);
        close_runner(&r);
    }
}
