/* model/: what is written is read as the same, for every operator; what is damaged is refused. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <unistd.h>

#include "buffer_sink.h"
#include "every_op.h"
#include "main.h"
#include "model_cases.h"

/* ---------------------------------------------------------------- round trips */

/* A file that is mapped, and gone. */
static ds_mapped *map_file(const ds_buffer *file)
{
    char path[] = "/tmp/ds_test_model_XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, file->bytes, file->n_bytes) == (ssize_t)file->n_bytes &&
          close(fd) == 0);
    ds_mapped *mapped = NULL;
    CHECK(ds_mapped_open(&mapped, &hooks, path) == DS_OK && unlink(path) == 0);
    return mapped;
}

static ds_graph *read_mapped(ds_mapped *mapped)
{
    ds_graph *graph = NULL;
    ds_interface *interface = NULL;
    CHECK_OK(ds_model_read(&graph, &interface, &hooks, mapped, false));
    ds_interface_free(interface);
    return graph;
}

static void check_weights_lie_in_file(const ds_graph *g)
{
    const char *bytes = ds_mapped_bytes(g->file);
    for (size_t j = 0; j < g->n_nodes; j++) {
        for (int k = 0; k < g->nodes[j].op->n_weights; k++) {
            const ds_weight *w = &g->nodes[j].weights[k];
            const char *data = w->data;
            CHECK(data == NULL || (w->borrowed && data >= bytes && w->name != NULL &&
                                   (size_t)(data - bytes) + w->n_bytes <= ds_mapped_size(g->file)));
        }
    }
}

TEST(every_operator)
{
    size_t n_defs;
    const ds_op_def *const *defs = ds_op_defs(&n_defs);
    bool seen[256] = {false};
    CHECK(n_defs <= sizeof seen);
    for (size_t i = 0; i < N_EVERY_OP; i++) {
        const char *name;
        graph_case c = case_of_op(every_op[i], &name);
        ds_buffer file = file_of_graph(c.graph);
        ds_graph *read = NULL;
        check_file(&file, c.graph, &read);
        CHECK(strcmp(read->nodes[0].path, "net.layer") == 0);
        check_weights_lie_in_file(read); /* a copy, which is held until a plan is made */
        ds_graph_destroy(read);
        ds_mapped *mapped = map_file(&file);
        read = read_mapped(mapped);
        ds_mapped_release(mapped);
        check_weights_lie_in_file(read);
        ds_graph_destroy(read);
        ds_buffer_free(&file);
        ds_graph_destroy(c.graph);
        for (size_t k = 0; k < n_defs; k++)
            seen[k] = seen[k] || strcmp(defs[k]->name, name) == 0;
    }
    for (size_t k = 0; k < n_defs; k++) {
        if (!seen[k])
            fprintf(stderr, "every_op has no %s\n", defs[k]->name);
        CHECK(seen[k]);
    }
}

TEST(random_graphs)
{
    for (int trial = 0; trial < SOME_OF(300); trial++) {
        random_state = (uint64_t)trial;
        graph_case c = random_case(8, true);
        ds_buffer file = file_of_graph(c.graph);
        check_file(&file, c.graph, NULL);
        ds_buffer_free(&file);
        ds_graph_destroy(c.graph);
    }
}

/* ---------------------------------------------------------------- names */

static int add_named(graph_case *c, int x, const char *path, const char *name, float value)
{
    float data[16];
    for (int i = 0; i < 16; i++)
        data[i] = value;
    const ds_signature s = {.dtype = DS_F32, .rank = 2, .shape = {4, 4}, .rate = {0, 1}};
    const void *weight = data;
    const ds_node_names names = {.path = path, .weights = &name};
    int y = -1;
    CHECK(ds_graph_node(c->graph, &y, &ds_op_linear, NULL, 0, &x, 1, &s, &weight, 1, &names) ==
          DS_OK);
    return y;
}

TEST(names)
{
    static const struct {
        const char *path, *name;
        float value;
        const char *in_file;
    } cases[] = {{"a", "a.weight", 1, "a.weight"},
                 {"a", "a.weight", 1, "a.weight"},   /* called twice: one tensor */
                 {"a", "a.weight", 2, "a.linear.0"}, /* changed meanwhile */
                 {"b", "tied", 1, "tied"},           /* equal bytes, other name: its own */
                 {"b", NULL, 1, "b.linear.0"},
                 {"b", NULL, 1, "b.linear.0.4"},
                 {"", NULL, 1, "linear.0"},
                 {"", "__metadata__", 1, "linear.0.6"},
                 {".pad.1", NULL, 1, "model.pad.1.linear.0"},
                 {"c", ".pad.0", 1, "c.linear.0"},
                 {"c", "", 1, ""},
                 {"d", "b.linear.0", 1, "d.linear.0"},
                 {"é", "é\"\\\n", 1, "é\"\\\n"}};
    enum { N = sizeof cases / sizeof cases[0] };
    graph_case c = new_case();
    int x = add_input(&c, 4, 1, 1);
    for (size_t i = 0; i < N; i++)
        x = add_named(&c, x, cases[i].path, cases[i].name, cases[i].value);
    add_output(&c, x);
    CHECK(c.status == DS_OK);
    CHECK(c.graph->nodes[0].weights[0].data == c.graph->nodes[1].weights[0].data);
    CHECK(c.graph->nodes[0].weights[0].data != c.graph->nodes[2].weights[0].data);
    CHECK(c.graph->nodes[0].weights[0].data != c.graph->nodes[3].weights[0].data);
    ds_buffer file = file_of_graph(c.graph);
    ds_graph *read = NULL;
    check_file(&file, c.graph, &read);
    for (size_t i = 0; i < N; i++) {
        CHECK(strcmp(read->nodes[i].weights[0].name, cases[i].in_file) == 0);
        CHECK(strcmp(read->nodes[i].path, cases[i].path) == 0);
    }
    CHECK(read->nodes[0].weights[0].data == read->nodes[1].weights[0].data);
    ds_graph_destroy(read);
    ds_buffer_free(&file);
    ds_graph_destroy(c.graph);
}

/* ---------------------------------------------------------------- refusals when writing */

static ds_status try_write(const ds_graph *g, const ds_interface *interface)
{
    ds_buffer file;
    ds_buffer_init(&file, NULL);
    const ds_sink sink = buffer_sink(&file);
    const ds_status status = ds_model_write(&sink, g, interface, NULL);
    CHECK(status == DS_OK || file.n_bytes == 0);
    ds_buffer_free(&file);
    return status;
}

TEST(write_refuses)
{
    graph_case c = new_case();
    const int x = add_input(&c, 4, 1, 1);
    const int y = add_named(&c, x, "a", "w", 1);
    add_output(&c, y);
    ds_interface *interface = interface_for(c.graph);
    CHECK(try_write(c.graph, interface) == DS_OK);
    /* interfaces */
    interface->skew = -1;
    CHECK(failed(try_write(c.graph, interface), DS_ARGUMENT, "skew"));
    interface->skew = 0;
    interface->outputs[0].dims[0] = 0;
    CHECK(failed(try_write(c.graph, interface), DS_ARGUMENT, "dimension"));
    interface->outputs[0].dims[0] = DS_DIM_B;
    interface->outputs[0].signature.rate.den = 2;
    CHECK(failed(try_write(c.graph, interface), DS_ARGUMENT, "signature"));
    interface->outputs[0].signature.rate.den = 1;
    char saved = interface->name[0];
    interface->name[0] = (char)0xff;
    CHECK(failed(try_write(c.graph, interface), DS_ARGUMENT, "UTF-8"));
    interface->name[0] = saved;
    const unsigned char first = interface->structure.bytes[0];
    interface->structure.bytes[0] = 'x';
    CHECK(failed(try_write(c.graph, interface), DS_ARGUMENT, "interface"));
    interface->structure.bytes[0] = first;
    CHECK(try_write(c.graph, interface) == DS_OK);
    /* graphs */
    c.graph->nodes[0].path[0] = (char)0xc3;
    CHECK(failed(try_write(c.graph, interface), DS_ARGUMENT, "UTF-8"));
    c.graph->nodes[0].path[0] = 'a';
    const int late = add_input(&c, 2, 1, 1);
    CHECK(failed(try_write(c.graph, interface), DS_ARGUMENT, "inputs first"));
    (void)late;
    ds_interface_free(interface);
    ds_graph_destroy(c.graph);
    c = new_case();
    add_input(&c, 4, 1, 1);
    const ds_interface none = {.n_outputs = 0};
    CHECK(failed(try_write(c.graph, &none), DS_ARGUMENT, "an output"));
    ds_graph_destroy(c.graph);
}

/* ---------------------------------------------------------------- damaged files */

static graph_case small_case(void)
{
    random_state = 7;
    graph_case c = new_case();
    const int x = add_input(&c, 3, 100, 1);
    const int y = add_conv(&c, x, 2, 3, 2);
    const int z = add_unary(&c, "tanh", y);
    add_output(&c, add_combined(&c, "add", y, z));
    add_output(&c, add_reduction(&c, z, "mean"));
    CHECK(c.status == DS_OK);
    return c;
}

/* Reads what may be a model; whatever it is, nothing remains. */
static ds_status read_and_forget(const void *bytes, size_t n_bytes)
{
    ds_graph *graph = NULL;
    ds_interface *interface = NULL;
    const ds_status status = read_bytes(&graph, &interface, bytes, n_bytes);
    CHECK(status == DS_OK || (graph == NULL && interface == NULL));
    if (status == DS_OK) {
        ds_buffer again = file_of(graph, interface);
        ds_buffer_free(&again);
    }
    ds_interface_free(interface);
    ds_graph_destroy(graph);
    return status;
}

TEST(truncated)
{
    graph_case c = small_case();
    ds_buffer file = file_of_graph(c.graph);
    const size_t live = ds_fault_live_blocks(&fault);
    for (size_t n = 0; n < file.n_bytes; n++)
        CHECK(failed(read_and_forget(file.bytes, n), DS_FORMAT, "expected"));
    CHECK(read_and_forget(file.bytes, file.n_bytes) == DS_OK);
    CHECK(ds_buffer_append(&file, "", 1) == DS_OK);
    CHECK(failed(read_and_forget(file.bytes, file.n_bytes), DS_FORMAT, "the end of the file"));
    CHECK(ds_fault_live_blocks(&fault) == live);
    ds_buffer_free(&file);
    ds_graph_destroy(c.graph);
}

TEST(damaged)
{
    static const unsigned char flips[] = {0xff, 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80};
    graph_case c = small_case();
    ds_buffer file = file_of_graph(c.graph);
    const size_t live = ds_fault_live_blocks(&fault);
    size_t n_refused = 0;
    for (size_t n = 0; n < file.n_bytes; n++) {
        for (size_t k = 0; k < sizeof flips; k++) {
            file.bytes[n] ^= flips[k];
            const ds_status status = read_and_forget(file.bytes, file.n_bytes);
            CHECK(status == DS_OK || status == DS_FORMAT);
            n_refused += status == DS_FORMAT;
            file.bytes[n] ^= flips[k];
        }
    }
    CHECK(n_refused > file.n_bytes && ds_fault_live_blocks(&fault) == live);
    ds_buffer_free(&file);
    ds_graph_destroy(c.graph);
}

/* ---------------------------------------------------------------- failing allocations and sinks */

TEST(failing_allocations)
{
    graph_case c = small_case();
    ds_interface *interface = interface_for(c.graph);
    ds_buffer file = file_of(c.graph, interface);
    ds_mapped *mapped = NULL;
    CHECK(ds_mapped_copy(&mapped, NULL, file.bytes, file.n_bytes) == DS_OK);
    const size_t live = ds_fault_live_blocks(&fault);
    size_t n = 1;
    for (ds_status status = DS_NO_MEMORY; status != DS_OK; n++) {
        ds_graph *graph = NULL;
        ds_interface *made = NULL;
        ds_fault_arm(&fault, n, false);
        status = ds_model_read(&graph, &made, &hooks, mapped, false);
        ds_fault_disarm(&fault);
        CHECK(status == DS_OK || (status == DS_NO_MEMORY && graph == NULL && made == NULL));
        ds_interface_free(made);
        ds_graph_destroy(graph);
        CHECK(ds_fault_live_blocks(&fault) == live);
    }
    CHECK(n > 20);
    n = 1;
    for (ds_status status = DS_NO_MEMORY; status != DS_OK; n++) {
        ds_fault_arm(&fault, n, false);
        status = try_write(c.graph, interface);
        ds_fault_disarm(&fault);
        CHECK(status == DS_OK || status == DS_NO_MEMORY);
        CHECK(ds_fault_live_blocks(&fault) == live);
    }
    CHECK(n > 15);
    ds_mapped_release(mapped);
    ds_buffer_free(&file);
    ds_interface_free(interface);
    ds_graph_destroy(c.graph);
}

static ds_status write_some(void *context, const void *bytes, size_t n_bytes)
{
    size_t *left = context;
    (void)bytes;
    DS_CHECK(n_bytes <= *left, DS_LIMIT, "the disk is full");
    *left -= n_bytes;
    return DS_OK;
}

TEST(failing_sink)
{
    graph_case c = small_case();
    ds_interface *interface = interface_for(c.graph);
    ds_buffer file = file_of(c.graph, interface);
    for (size_t n = 0; n <= file.n_bytes; n += file.n_bytes / 20 + 1) {
        size_t left = n;
        const ds_sink sink = {&left, write_some};
        CHECK(failed(ds_model_write(&sink, c.graph, interface, NULL), DS_LIMIT, "disk"));
    }
    ds_buffer_free(&file);
    ds_interface_free(interface);
    ds_graph_destroy(c.graph);
}

/* ---------------------------------------------------------------- sharing */

TEST(two_share_a_mapping)
{
    graph_case c = small_case();
    ds_buffer file = file_of_graph(c.graph);
    ds_mapped *mapped = map_file(&file);
    ds_graph *graphs[2] = {read_mapped(mapped), read_mapped(mapped)};
    ds_mapped_release(mapped);
    CHECK(graphs[0]->nodes[0].weights[0].data == graphs[1]->nodes[0].weights[0].data);
    ds_graph_destroy(graphs[0]);
    uint64_t a[2], b[2]; /* the second one still has its weights */
    ds_graph_fingerprint(graphs[1], a);
    ds_graph_fingerprint(c.graph, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    ds_plan *plan = NULL;
    CHECK(ds_plan_create(&plan, graphs[1], best_kernels(), 0, 0) == DS_OK);
    CHECK(memcmp(plan->fingerprint, b, sizeof b) == 0);
    ds_plan_destroy(plan);
    ds_buffer_free(&file);
    ds_graph_destroy(c.graph);
}
