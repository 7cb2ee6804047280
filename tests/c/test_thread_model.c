/* model/: several threads read one mapping, write what they read, and plan it. */
#include "model_cases.h"

typedef struct task {
    ds_mapped *file;
    uint64_t fingerprint[2];
} task;

static void *use(void *argument)
{
    const task *t = argument;
    for (int i = 0; i < 20; i++) {
        ds_graph *graph = NULL;
        ds_interface *interface = NULL;
        ds_plan *plan = NULL;
        CHECK(ds_model_read(&graph, &interface, &hooks, t->file, false) == DS_OK);
        ds_buffer again = file_of(graph, interface);
        CHECK(again.n_bytes == ds_mapped_size(t->file));
        CHECK(memcmp(again.bytes, ds_mapped_bytes(t->file), again.n_bytes) == 0);
        CHECK(ds_plan_create(&plan, graph, best_kernels(), interface->skew, 0) == DS_OK);
        CHECK(memcmp(plan->fingerprint, t->fingerprint, sizeof t->fingerprint) == 0);
        ds_plan_destroy(plan);
        ds_buffer_free(&again);
        ds_interface_free(interface);
        const char *bytes = ds_mapped_bytes(t->file);
        CHECK(read_bytes(&graph, &interface, bytes, ds_mapped_size(t->file) - 1) == DS_FORMAT);
    }
    ds_mapped_release(t->file);
    return NULL;
}

int main(void)
{
    enum { N_THREADS = 3 };
    count_memory();
    graph_case c = new_case();
    const int x = add_input(&c, 3, 1, 1);
    add_output(&c, add_lstm(&c, add_conv(&c, x, 4, 3, 2), 5, false));
    ds_buffer file = file_of_graph(c.graph);
    task t = {0};
    ds_graph_fingerprint(c.graph, t.fingerprint);
    CHECK(ds_mapped_copy(&t.file, &hooks, file.bytes, file.n_bytes) == DS_OK);
    ds_graph_destroy(c.graph);
    ds_buffer_free(&file);
    for (int i = 1; i < N_THREADS; i++)
        (void)ds_mapped_share(t.file);
    in_parallel(N_THREADS, use, use, &t, 0);
    return report_memory();
}
