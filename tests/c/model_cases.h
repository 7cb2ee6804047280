/*
 * Model files for tests: interfaces made up for a graph, files in memory, and whether two models are one.
 */
#pragma once

#include "buffer_sink.h"
#include "graph_cases.h"
#include "model/model.h"

static inline void put_test_port(ds_json_writer *w, const char *name, size_t i,
                                 const ds_signature *s, bool is_output)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%s%zu", name, i);
    ds_json_put_open(w, NULL, DS_JSON_OBJECT);
    ds_json_put_string(w, "name", text);
    ds_json_put_open(w, "dimensions", DS_JSON_ARRAY);
    ds_json_put_string(w, NULL, "B");
    for (int d = s->rank; d-- > 0;) /* in an order of its own */
        ds_json_put_integer(w, NULL, d);
    if (s->rate.num > 0)
        ds_json_put_string(w, NULL, "L");
    ds_json_put_close(w);
    if (is_output) {
        ds_json_put_string(w, "dtype", ds_dtype_name(s->dtype));
        ds_json_put_open(w, "shape", DS_JSON_ARRAY);
        for (int d = 0; d < s->rank; d++)
            ds_json_put_integer(w, NULL, s->shape[d]);
        ds_json_put_close(w);
        ds_json_put_open(w, "rate", DS_JSON_ARRAY);
        ds_json_put_integer(w, NULL, s->rate.num);
        ds_json_put_integer(w, NULL, s->rate.den);
        ds_json_put_close(w);
    }
    ds_json_put_close(w);
}

/* The text of an interface for the graph; its outputs lie in an object of an array. */
static inline ds_buffer interface_text(const ds_graph *g)
{
    ds_buffer text;
    ds_buffer_init(&text, NULL);
    ds_json_writer w;
    ds_json_writer_init(&w, &text);
    ds_json_put_open(&w, NULL, DS_JSON_OBJECT);
    ds_json_put_string(&w, "name", "Tëst");
    ds_json_put_boolean(&w, "by_name", g->n_inputs > 1);
    ds_json_put_integer(&w, "skew", 3);
    ds_json_put_boolean(&w, "blas", false);
    ds_json_put_open(&w, "inputs", DS_JSON_ARRAY);
    for (size_t i = 0; i < g->n_inputs; i++)
        put_test_port(&w, "x", i, &g->edges[g->inputs[i]].signature, false);
    ds_json_put_close(&w);
    ds_json_put_open(&w, "outputs", DS_JSON_ARRAY);
    for (size_t o = 0; o < g->n_outputs; o++)
        put_test_port(&w, "y", o, &g->edges[g->outputs[o]].signature, true);
    ds_json_put_close(&w);
    ds_json_put_open(&w, "structure", DS_JSON_OBJECT);
    ds_json_put_open(&w, "list", DS_JSON_ARRAY);
    for (size_t o = g->n_outputs; o-- > 0;)
        ds_json_put_integer(&w, NULL, (int64_t)o);
    ds_json_put_close(&w);
    ds_json_put_close(&w);
    ds_json_put_close(&w);
    CHECK(ds_json_writer_finish(&w) == DS_OK);
    return text;
}

static inline ds_interface *interface_for(const ds_graph *g)
{
    ds_interface *interface = NULL;
    ds_buffer text = interface_text(g);
    CHECK_OK(ds_interface_parse(&interface, &hooks, (const char *)text.bytes, text.n_bytes, g));
    ds_buffer_free(&text);
    return interface;
}

/* The file of a graph with its interface. */
static inline ds_buffer file_of(const ds_graph *g, const ds_interface *interface)
{
    ds_buffer file;
    ds_buffer_init(&file, NULL);
    const ds_sink sink = buffer_sink(&file);
    CHECK_OK(ds_model_write(&sink, g, interface, NULL));
    return file;
}

static inline ds_buffer file_of_graph(const ds_graph *g)
{
    ds_interface *interface = interface_for(g);
    const ds_buffer file = file_of(g, interface);
    ds_interface_free(interface);
    return file;
}

/* Reads `n_bytes` at `bytes` as a file in memory of its own. */
static inline ds_status read_bytes(ds_graph **graph, ds_interface **interface, const void *bytes,
                                   size_t n_bytes)
{
    ds_mapped *file = NULL;
    CHECK(ds_mapped_copy(&file, NULL, bytes, n_bytes) == DS_OK);
    const ds_status status = ds_model_read(graph, interface, &hooks, file, false);
    ds_mapped_release(file);
    return status;
}

static inline bool same_bytes(const ds_buffer *a, const ds_buffer *b)
{
    return a->n_bytes == b->n_bytes && memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

/* Reads the file, and writes it again as the same bytes; the graph, owned, if `read` is not NULL. */
static inline void check_file(const ds_buffer *file, const ds_graph *original, ds_graph **read)
{
    ds_graph *graph = NULL;
    ds_interface *interface = NULL;
    CHECK_OK(read_bytes(&graph, &interface, file->bytes, file->n_bytes));
    ds_buffer again = file_of(graph, interface);
    CHECK(same_bytes(&again, file));
    uint64_t a[2], b[2];
    ds_graph_fingerprint(original, a);
    ds_graph_fingerprint(graph, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
    ds_buffer_free(&again);
    ds_interface_free(interface);
    if (read != NULL)
        *read = graph;
    else
        ds_graph_destroy(graph);
}
