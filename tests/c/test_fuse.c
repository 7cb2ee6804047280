/* Products with epilogues, and weights that are given back. Epilogues: each graph that fuses, against its
 * operators one by one, to the bit; in pieces, in ragged batches, with threads, on all instruction sets. And
 * graphs that must not fuse. */
#include <math.h>

#include "exec_driver.h"

static size_t count_made(const ds_plan *plan)
{
    size_t n = 0;
    for (size_t j = 0; j < plan->graph->n_nodes; j++)
        n += plan->graph->nodes[j].made ? 1 : 0;
    return n;
}

enum { ROUNDS = SOME_OF(60) };

enum { LINEAR, CONV, DEPTHWISE, GROUPED, MATMUL, KINDS };

/* A product of n_out columns that keeps counts: linear, matmul, or a convolution. */
static int add_product(graph_case *c, int x, int64_t n_out, int kind)
{
    const int64_t n_in = width_of(c, x);
    if (kind == LINEAR)
        return add_linear(c, x, n_out);
    const ds_signature matrix = {
        .dtype = DS_F32, .rank = 2, .shape = {n_out, n_in}, .rate = {0, 1}};
    if (kind == MATMUL)
        return add_node(c, &ds_op_matmul, NULL, 0, &x, 1, &matrix, 1);
    const int64_t groups = kind == DEPTHWISE ? n_in : kind == GROUPED ? n_in / 2 : 1;
    const ds_attr attrs[] = {int_attr("left", 2), int_attr("right", 0), int_attr("groups", groups),
                             int_attr("dilation", 1)};
    const ds_signature weights[] = {
        {.dtype = DS_F32, .rank = 3, .shape = {n_out, n_in / groups, 3}, .rate = {0, 1}},
        {.dtype = DS_F32, .rank = 1, .shape = {n_out}, .rate = {0, 1}}};
    return add_node(c, &ds_op_conv1d, attrs, 4, &x, 1, weights, random_below(2) == 0 ? 1 : 2);
}

/* A function of e and of a constant, for each column or one for all, on either side. */
static int add_constant(graph_case *c, const char *name, int e)
{
    const bool swapped = random_below(2) == 0;
    const ds_attr order = {.name = "order",
                           .kind = DS_ATTR_INTS,
                           .value = {.ints = {swapped ? 1 : 0, swapped ? 0 : 1}, .n_ints = 2}};
    const ds_signature constant = {.dtype = DS_F32,
                                   .rank = (int)random_below(2),
                                   .rate = {0, 1},
                                   .shape = {random_below(3) == 0 ? 1 : width_of(c, e)}};
    return add_node(c, ds_op_find(name), &order, 1, &e, 1, &constant, 1);
}

static int add_batch_norm(graph_case *c, int e)
{
    const size_t n = (size_t)width_of(c, e);
    const ds_signature channel = {
        .dtype = DS_F32, .rank = 1, .shape = {(int64_t)n}, .rate = {0, 1}};
    const ds_signature weights[] = {channel, channel, channel, channel};
    float *const values = fresh_memory(4 * n * sizeof(float));
    const void *data[4];
    int y = -1;
    fill_random(values, 4 * n);
    for (size_t i = 0; i < 4; i++)
        data[i] = values + i * n;
    for (size_t i = 0; i < n; i++)
        values[n + i] = fabsf(values[n + i]) + 0.25f;
    CHECK(ds_graph_node(c->graph, &y, ds_op_find("batch_norm"), NULL, 0, &e, 1, weights, data, 4,
                        NULL) == DS_OK);
    free(values);
    return y;
}

/* Those that can be steps, without glu and batch_norm. */
static const struct {
    const char *name;
    int function, n_operands;
} functions[] = {
#define UNARY(name, ID, ...) {#name, DS_UNARY_##ID, 1},
#define WHOLE UNARY
#define BINARY(name, ID, ...) {#name, DS_BINARY_##ID, 2},
#include "kernels/pointwise.def"
};

/* A function that makes numbers of numbers, and no large ones: of a NaN, bits may differ. */
static const char *function_of(int n_operands)
{
    static const float x[] = {-8, -1, 0, 8}, y[] = {0, 8, -8, 0};
    static const double p[] = {1, 1, 1};
    for (;;) {
        const size_t i = (size_t)random_below(sizeof functions / sizeof *functions);
        const ds_real_kernels *k = &ds_kernels_for(DS_ISA_REF)->real[0];
        float made[4];
        if (functions[i].n_operands == 1)
            k->unary((ds_unary)functions[i].function, made, x, 4, p);
        else
            k->binary((ds_binary)functions[i].function, made, x, y, 4, 1, 1);
        bool tame = functions[i].n_operands == n_operands;
        for (int j = 0; j < 4; j++)
            tame = tame && fabsf(made[j]) <= 64;
        if (tame)
            return functions[i].name;
    }
}

/* One step after e; stream: another edge of the same frames, taken at most once. */
static int add_step(graph_case *c, int e, int stream, bool *taken)
{
    const char *name = function_of(2);
    switch (random_below(4)) {
    case 0:
        return add_batch_norm(c, e);
    case 1:
        return add_constant(c, name, e);
    case 2:
        if (!*taken) {
            *taken = true;
            return random_below(2) == 0 ? add_combined(c, name, e, stream)
                                        : add_combined(c, name, stream, e);
        }
        /* fall through */
    default:
        return add_unary(c, function_of(1), e);
    }
}

static void run_case(graph_case *c, const ds_kernels *kernels, size_t n_threads, size_t n_made)
{
    runner r = make_runner(c, kernels, 0, n_threads, 0);
    CHECK(count_made(r.plan) == n_made);
    fed streams[3];
    const size_t n = 1 + (size_t)random_below(3);
    for (size_t k = 0; k < n; k++)
        streams[k] = open_fed(&r, random_in(0, 40));
    feed_all(&r, streams, n);
    for (size_t k = 0; k < n; k++)
        free_fed(&r, &streams[k]);
    close_runner(&r);
}

static void test_chains(const ds_kernels *kernels)
{
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t seed = random_state;
        for (size_t n_threads = 1; n_threads <= 2; n_threads++) {
            random_state = seed;
            graph_case c = new_case();
            const int kind = (int)random_below(KINDS);
            const bool groups = kind == DEPTHWISE || kind == GROUPED;
            const int64_t n_in = kind == GROUPED ? 2 * random_in(2, 20) : random_in(2, 40);
            int64_t n_out = groups ? n_in * random_in(1, 2) : random_in(1, 75);
            const int x = add_input(&c, n_in, 1, 1);
            const bool glu = !groups && random_below(3) == 0;
            int e = add_product(&c, x, glu ? 2 * n_out : n_out, kind);
            e = glu ? add_unary(&c, "glu", e) : e;
            const int stream = add_unary(&c, "relu", add_linear(&c, x, n_out));
            const int64_t n_steps = random_in(glu ? 0 : 1, 4);
            bool taken = false;
            for (int64_t i = 0; i < n_steps; i++)
                e = add_step(&c, e, stream, &taken);
            add_output(&c, e);
            add_output(&c, stream);
            run_case(&c, kernels, n_threads, 2);
        }
    }
}

/* Planes and images: every position of a frame is a row of the product. */
static void test_planes(const ds_kernels *kernels)
{
    for (int round = 0; round < SOME_OF(40); round++) {
        graph_case c = new_case();
        const int64_t channels = random_in(1, 5), n_out = random_in(1, 40);
        const bool images = random_below(2) == 0;
        const ds_signature in = {.dtype = DS_F32,
                                 .rate = {1, 1},
                                 .rank = images ? 3 : 2,
                                 .shape = {images ? 4 : 6, images ? 6 : channels, channels}};
        const ds_signature weights[] = {
            {.dtype = DS_F32, .rank = 4, .shape = {2 * n_out, channels, 3, 3}, .rate = {0, 1}},
            {.dtype = DS_F32, .rank = 1, .shape = {2 * n_out}, .rate = {0, 1}}};
        const ds_attr padding = {
            .name = "padding",
            .kind = DS_ATTR_INTS,
            .value = {.ints = {images ? 1 : 2, images ? 1 : 0, 1, 1}, .n_ints = 4}};
        int x = 0;
        CHECK(ds_graph_input(c.graph, &x, &in) == DS_OK);
        int e = add_node(&c, &ds_op_conv2d, &padding, 1, &x, 1, weights, 2);
        const int other = add_node(&c, &ds_op_conv2d, &padding, 1, &x, 1, weights, 2);
        e = add_unary(&c, "glu", e);
        add_output(&c,
                   add_combined(&c, "add", add_unary(&c, "silu", e), add_unary(&c, "glu", other)));
        run_case(&c, kernels, 1, 2);
    }
}

/* Frames that share a product take what is the same for all columns; outputs that no tap reaches end as others do. */
static void test_transposed(const ds_kernels *kernels)
{
    for (int round = 0; round < SOME_OF(60); round++) {
        graph_case c = new_case();
        const int x = add_input(&c, random_in(1, 20), 1, 1);
        const int64_t kernel = random_in(1, 7), stride = random_in(1, 4);
        int e = add_transposed(&c, x, random_in(2, 40), kernel, stride);
        e = add_unary(&c, round % 2 == 0 ? "silu" : "abs", e);
        const bool by_column = round % 3 == 0;
        e = by_column ? add_batch_norm(&c, e) : add_unary(&c, "tanh", e);
        add_output(&c, e);
        run_case(&c, kernels, 1, 1);
    }
    for (int round = 0; round < 10; round++) {
        graph_case c = new_case();
        const int64_t n_out = random_in(1, 40);
        const ds_signature in = {.dtype = DS_F32, .rate = {1, 1}, .rank = 2, .shape = {6, 3}};
        const ds_signature weights[] = {
            {.dtype = DS_F32, .rank = 4, .shape = {3, n_out, 3, 3}, .rate = {0, 1}},
            {.dtype = DS_F32, .rank = 1, .shape = {n_out}, .rate = {0, 1}}};
        const ds_attr stride = {.name = "stride",
                                .kind = DS_ATTR_INTS,
                                .value = {.ints = {1 + round % 4, 2 + round % 3}, .n_ints = 2}};
        int x = 0;
        CHECK(ds_graph_input(c.graph, &x, &in) == DS_OK);
        const int e = add_node(&c, &ds_op_conv_transpose2d, &stride, 1, &x, 1, weights, 2);
        const int other = add_node(&c, &ds_op_conv_transpose2d, &stride, 1, &x, 1, weights, 1);
        add_output(&c, add_combined(&c, "add", add_unary(&c, "silu", e), other));
        run_case(&c, kernels, 1, 1);
    }
    for (int round = 0; round < SOME_OF(40);
         round++) { /* dilated, or in groups: a product for each phase */
        graph_case c = new_case();
        const int64_t groups = random_in(1, 2), n_out = groups * random_in(1, 20);
        const int x = add_input(&c, 4, 1, 1);
        const ds_attr attrs[] = {int_attr("stride", random_in(2, 6)), int_attr("groups", groups),
                                 int_attr("dilation", 3 - groups + random_in(0, 3)),
                                 int_attr("padding", random_in(0, 2))};
        const ds_signature weights[] = {
            {.dtype = DS_F32, .rank = 3, .shape = {4, n_out / groups, 3}, .rate = {0, 1}},
            {.dtype = DS_F32, .rank = 1, .shape = {n_out}, .rate = {0, 1}}};
        const int e = add_node(&c, &ds_op_conv_transpose1d, attrs, 4, &x, 1, weights, 2);
        const int other = add_node(&c, &ds_op_conv_transpose1d, attrs, 4, &x, 1, weights, 1);
        const int normed = add_batch_norm(&c, add_unary(&c, "sigmoid", e));
        add_output(&c, add_combined(&c, "mul", normed, other));
        run_case(&c, kernels, 1 + (size_t)round % 2, 1);
    }
}

/* What is read twice, is an output, keeps frames or broadcasts stays by itself. */
static void test_refusals(const ds_kernels *kernels)
{
    graph_case c = new_case();
    int x = add_input(&c, 3, 1, 1), e = add_linear(&c, x, 4);
    add_output(&c, add_unary(&c, "relu", e));
    add_output(&c, add_unary(&c, "neg", e));
    run_case(&c, kernels, 1, 0);

    c = new_case();
    x = add_input(&c, 3, 1, 1);
    e = add_linear(&c, x, 4);
    add_output(&c, e);
    add_output(&c, add_unary(&c, "relu", e));
    run_case(&c, kernels, 1, 0);

    c = new_case();
    x = add_input(&c, 3, 1, 1);
    e = add_linear(&c, x, 4);
    add_output(&c, add_combined(&c, "mul", e, e));
    run_case(&c, kernels, 1, 0);

    c = new_case(); /* the branch waits: its sync stays between */
    x = add_input(&c, 3, 1, 1);
    e = add_linear(&c, x, 3);
    add_output(&c, add_combined(&c, "add", e, add_padded_conv(&c, x, 3, 3, 1, 1, 1, 1, "zeros")));
    run_case(&c, kernels, 1, 0);

    c = new_case(); /* the operand has one feature for all */
    x = add_input(&c, 3, 1, 1);
    add_output(&c, add_combined(&c, "add", add_linear(&c, x, 4),
                                add_unary(&c, "neg", add_input(&c, 1, 1, 1))));
    run_case(&c, kernels, 1, 0);

    c = new_case();
    x = add_input(&c, 3, 1, 1);
    add_output(&c, add_unary(&c, "softmax", add_linear(&c, x, 4)));
    run_case(&c, kernels, 1, 0);
}

/* Two products, each other's operands: one takes the other's. */
static void test_pairs(const ds_kernels *kernels)
{
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    const int sum = add_combined(&c, "add", add_linear(&c, x, 33), add_linear(&c, x, 33));
    add_output(&c, add_unary(&c, "tanh", sum));
    run_case(&c, kernels, 1, 1);
}

/* ---------------------------------------------------------------- weights that were given back */

/* Plans a graph; all its weights must come back as they were. Returns how many had been given back. */
static size_t weights_return(graph_case *c, const ds_kernels *kernels)
{
    enum { MOST = 64 };
    char *was[MOST];
    size_t n = 0, raw_bytes = 0;
    for (size_t j = 0; j < c->graph->n_nodes; j++) {
        for (int i = 0; i < c->graph->nodes[j].op->n_weights; i++, n++) {
            const ds_weight *weight = &c->graph->nodes[j].weights[i];
            CHECK(n < MOST);
            was[n] = fresh_memory(weight->n_bytes);
            memcpy(was[n], weight->data, weight->n_bytes);
            raw_bytes += weight->borrowed ? 0 : weight->n_bytes;
        }
    }
    ds_plan *plan = plan_case(c, kernels, 0);
    restored whole = restore(plan, plan->model);
    CHECK(plan->raw_bytes == raw_bytes);
    n = 0;
    size_t left = 0;
    for (size_t j = 0; j < whole.graph->n_nodes; j++) {
        for (int i = 0; i < whole.graph->nodes[j].op->n_weights; i++, n++) {
            const ds_weight *weight = &whole.graph->nodes[j].weights[i];
            const ds_weight *held = &plan->model->nodes[j].weights[i];
            CHECK(memcmp(weight->data, was[n], weight->n_bytes) == 0);
            left += held->data == NULL || held->borrowed ? 0 : held->n_bytes;
            free(was[n]);
        }
    }
    CHECK(plan->weight_bytes == left + plan->prepared_bytes + plan->elements_bytes);
    const size_t n_replaced = plan->n_replaced;
    free_restored(&whole);
    ds_plan_destroy(plan);
    return n_replaced;
}

/* A linear layer [4][4] by a name, or that weight as a constant. */
static int add_named(graph_case *c, const char *op, int x, const float *data)
{
    const ds_signature weight = {.dtype = DS_F32, .rank = 2, .shape = {4, 4}, .rate = {0, 1}};
    const void *const values = data;
    const char *const name = "tied";
    const ds_node_names names = {.path = "", .weights = &name};
    int y = -1;
    const ds_attr order = {
        .name = "order", .kind = DS_ATTR_INTS, .value = {.ints = {0, 1}, .n_ints = 2}};
    CHECK(ds_graph_node(c->graph, &y, ds_op_find(op), &order, strcmp(op, "add") == 0 ? 1 : 0, &x, 1,
                        &weight, &values, 1, &names) == DS_OK);
    return y;
}

static void test_weights(const ds_kernels *kernels)
{
    const bool packs = kernels->real[0].format != DS_FORMAT_RAW;
    float data[16];
    fill_random(data, 16);
    graph_case c = new_case(); /* one weight of two products */
    int x = add_input(&c, 4, 1, 1);
    add_output(&c, add_named(&c, "linear", add_named(&c, "linear", x, data), data));
    CHECK(weights_return(&c, kernels) == (packs ? 1 : 0));

    c = new_case(); /* the other user reads it as it is */
    const ds_signature square = {.dtype = DS_F32, .rank = 2, .shape = {4, 4}, .rate = {1, 1}};
    CHECK(ds_graph_input(c.graph, &x, &square) == DS_OK);
    add_output(&c, add_named(&c, "add", add_named(&c, "linear", x, data), data));
    CHECK(weights_return(&c, kernels) == 0);

    for (int64_t kernel = 1; kernel < 8; kernel++) { /* in phases, in groups, in gates */
        c = new_case();
        x = add_input(&c, 6, 1, 1);
        const int64_t stride = random_in(1, 8);
        add_output(&c, add_transposed(&c, x, random_in(1, 40), kernel, stride));
        add_output(&c, add_product(&c, x, 12, 2));
        add_output(&c, add_lstm(&c, x, 5, kernel % 2 == 0));
        for (int64_t groups = 1; groups <= 3; groups++) {
            const ds_attr attrs[] = {int_attr("groups", groups), int_attr("stride", stride),
                                     int_attr("dilation", 2)};
            const ds_signature weights[] = {
                {.dtype = DS_F32, .rank = 3, .shape = {6, 6 / groups, kernel}, .rate = {0, 1}},
                {.dtype = DS_F32, .rank = 3, .shape = {6, 4, kernel}, .rate = {0, 1}}};
            add_output(&c, add_node(&c, &ds_op_conv1d, attrs, 3, &x, 1, weights, 1));
            add_output(&c, add_node(&c, &ds_op_conv_transpose1d, attrs, 3, &x, 1, weights + 1, 1));
        }
        /* without panels: the depthwise taps alone */
        CHECK(weights_return(&c, kernels) == (packs ? (kernel % 2 == 0 ? 12 : 10) : 1));
    }
}

int main(void)
{
    count_memory();
    const ds_kernels *all[8];
    const size_t n = ds_kernels_list(all, 8);
    for (size_t i = 0; i < n && all[i]->isa <= ds_cpu_best(); i++) {
        test_chains(all[i]);
        test_planes(all[i]);
        test_transposed(all[i]);
        test_refusals(all[i]);
        test_pairs(all[i]);
        test_weights(all[i]);
    }
    if (ds_kernels_blas(DS_ISA_REF) != NULL)
        test_weights(ds_kernels_blas(DS_ISA_REF));
    return report_memory();
}
