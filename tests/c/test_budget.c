/* exec/budget: what asks for more memory than it may is refused before it gets any, models and calls; what is counted is
 * about what is taken. */
#include "every_op.h"
#include "exec_driver.h"
#include "main.h"

#include <time.h>

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

static const struct {
    const char *name;
    make_node make;
} kinds[] = {{"pad", make_pad}, {"delay", make_delay}, {"slice", make_crop}};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static graph_case case_of(size_t kind, int64_t n)
{
    graph_case c = new_case();
    add_output(&c, kinds[kind].make(&c, add_input(&c, 1, 1, 1), n));
    CHECK(c.status == DS_OK);
    return c;
}

/* 2^30 frames of four bytes. */
TEST(refused_before_it_is_made)
{
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        graph_case c = case_of(kind, (int64_t)1 << 30);
        ds_plan *plan = NULL;
        CHECK(failed(ds_plan_create(&plan, c.graph, best_kernels(), 0, 0), DS_LIMIT,
                     "unless max_bytes says otherwise"));
        CHECK(plan == NULL && ds_fault_live_blocks(&fault) == 0);
        CHECK(strstr(ds_last_error(), kinds[kind].name) != NULL);
    }
    CHECK(ds_fault_peak_bytes(&fault) < (size_t)8 << 20);
}

/* One stream, one frame, the end. */
static void step_once(runner *r)
{
    const ds_graph *g = r->plan->graph;
    ds_slot *slot;
    int64_t n[DS_MAX_INPUTS];
    const bool ended = true;
    bool bad;
    for (size_t i = 0; i < g->n_inputs; i++)
        n[i] = 1;
    CHECK(ds_session_open(r->session, &slot, 0) == DS_OK);
    if (begin_rows(r->batch, &slot, n, &ended, &bad, 1) == DS_OK) { /* else it is too short */
        for (size_t i = 0; i < g->n_inputs; i++)
            memset(ds_step_room(r->batch, i, 0), 0,
                   ds_signature_bytes(&g->edges[g->inputs[i]].signature));
        ds_step_run(r->batch);
    }
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

/* Nodes count, too: a file has thousands for little. */
TEST(nodes)
{
    size_t counted[2];
    for (int n = 1; n <= 201; n += 200) {
        graph_case c = new_case();
        int x = add_input(&c, 1, 1, 1);
        for (int i = 0; i < n; i++)
            x = add_shift(&c, "delay", x, "frames", 1, NULL, 0);
        add_output(&c, x);
        const size_t before = ds_fault_live_bytes(&fault);
        ds_plan *plan = plan_within(&c, best_kernels(), 0, 0);
        counted[n > 1] = plan->budget.n_bytes;
        CHECK(n == 1 || counted[1] - counted[0] > 200 * sizeof(ds_op));
        CHECK(n == 1 || (counted[1] > before / 2 && counted[1] < 2 * before));
        ds_plan_destroy(plan);
    }
}

/* A call's rows are added up, and those that want most are to blame; nothing has happened. */
TEST(calls)
{
    for (size_t n_threads = 1; n_threads <= 2; n_threads++) {
        graph_case c = case_of(1, 10);
        runner r = run_plan(plan_within(&c, best_kernels(), 0, 1 << 15));
        CHECK(n_threads == 1 || ds_pool_create(&r.pool, &hooks, n_threads) == DS_OK);
        r.batch->pool = r.pool;
        ds_slot *slots[2];
        CHECK(ds_session_open(r.session, &slots[0], 0) == DS_OK);
        CHECK(ds_session_open(r.session, &slots[1], 0) == DS_OK);
        const bool ended[2] = {false, false};
        bool bad[2];
        const int64_t much[] = {2, 16000}, less[] = {2, 500};
        CHECK(failed(begin_rows(r.batch, slots, much, ended, bad, 2), DS_LIMIT,
                     "max_bytes is 32768"));
        CHECK(!bad[0] && bad[1]);
        CHECK(strstr(ds_last_error(), "of one stream for what") != NULL);
        CHECK_OK(begin_rows(r.batch, slots, less, ended, bad, 2));
        ds_step_run(r.batch);
        int64_t start;
        CHECK(ds_step_frames(r.batch, 0, 1, &start) == 500 && start == 0);
        close_runner(&r);
    }
}

/* ---------------------------------------------------------------- every operator, every number */

/* An operator with one number that is large: it is refused, or planned at once and within what is allowed; where that is
 * little, it takes about as much. */
static void check_large(const op_text *t, const char *attribute, int64_t value)
{
    enum { LITTLE = 1 << 26 };
    ds_plan *plan = NULL;
    count_memory();
    graph_case c = graph_of_op(t);
    const clock_t began = clock();
    ds_status status = c.status;
    if (status == DS_OK)
        status = ds_plan_create(&plan, c.graph, best_kernels(), 0, 0);
    else
        ds_graph_destroy(c.graph);
    const double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
    const size_t peak = ds_fault_peak_bytes(&fault);
    const bool right = peak < (status == DS_OK ? (size_t)3 << 30 : (size_t)80 << 20);
    if (!right || seconds > 0.3)
        fprintf(stderr, "%s, %s %lld: %s, %g s, %zu bytes\n", t->def->name, attribute,
                (long long)value, ds_status_name(status), seconds, peak);
    CHECK(right);
    if (status == DS_OK && plan->budget.n_bytes < LITTLE) {
        runner r = run_plan(plan);
        const size_t counted = plan->budget.n_bytes;
        const clock_t before = clock();
        step_once(&r);
        const double took = (double)(clock() - before) / CLOCKS_PER_SEC;
        const size_t taken = ds_fault_live_bytes(&fault);
        if (taken >= 2 * counted + (4 << 20) || took > 1)
            fprintf(stderr, "%s, %s %lld: %zu bytes were counted, %zu taken; %g s\n", t->def->name,
                    attribute, (long long)value, counted, taken, took);
        CHECK(taken < 2 * counted + (4 << 20));
        close_runner(&r);
    } else {
        ds_plan_destroy(plan);
    }
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

/* Under the sanitizer an operator is tried with every second of these numbers, by turns. */
TEST(every_operator)
{
    enum { APART = 2 / SOME_OF(2) };
    static const int64_t values[] = {1000,          1 << 20, 1 << 24,         1 << 28,
                                     (1 << 29) - 1, 1 << 30, (int64_t)1 << 39};
    for (size_t k = 0; k < N_EVERY_OP; k++) {
        op_text t = read_op(every_op[k]);
        for (const ds_attr_def *d = t.def->attrs; d != NULL && d->name != NULL; d++) {
            size_t at = 0;
            while (at < t.n_attrs && strcmp(t.attrs[at].name, d->name) != 0)
                at++;
            if ((d->kind != DS_ATTR_INT && d->kind != DS_ATTR_INTS) || at == DS_MAX_ATTRS)
                continue;
            for (size_t v = k % APART; v < sizeof values / sizeof *values; v += APART) {
                op_text large = t;
                ds_attr *attr = &large.attrs[at];
                if (at == t.n_attrs) {
                    *attr = (ds_attr){.name = d->name, .kind = d->kind};
                    large.n_attrs++;
                }
                attr->value.i = values[v];
                const int n = d->kind == DS_ATTR_INT ? 1 : attr->value.n_ints;
                for (int i = 0; i < n; i++) {
                    const int64_t was = attr->value.ints[i];
                    attr->value.ints[i] = values[v];
                    check_large(&large, d->name, values[v]);
                    attr->value.ints[i] = was;
                }
            }
        }
        free_op_text(&t);
    }
}
