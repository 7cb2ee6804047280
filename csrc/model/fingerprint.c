/* model/fingerprint.c: what a model file says of itself, so that damage shows.
 *
 * The graph's fingerprint (ir/fingerprint.c), into which the paths of the nodes and the text of the
 * interface are mixed: all that a file holds but the names of its weights, which it holds twice. */
#include <stdio.h>
#include <string.h>

#include "codec/buffer.h"
#include "model/members.h"

ds_status ds_model_fingerprint(ds_model_mark *mark, const ds_graph *graph,
                               const ds_interface *interface)
{
    uint64_t h[2];
    ds_graph_fingerprint(graph, h);
    for (size_t j = 0; j < graph->n_nodes; j++)
        ds_fingerprint_bytes(h, graph->nodes[j].path, strlen(graph->nodes[j].path));
    ds_buffer text;
    ds_buffer_init(&text, &graph->allocator);
    const ds_sink sink = ds_buffer_sink(&text);
    ds_json_writer writer;
    ds_json_writer_init(&writer, &sink);
    ds_interface_put(&writer, interface);
    const ds_status status = ds_json_writer_finish(&writer);
    if (status == DS_OK) {
        ds_fingerprint_bytes(h, text.bytes, text.n_bytes);
        snprintf(mark->text, sizeof mark->text, "%016llx%016llx", (unsigned long long)h[0],
                 (unsigned long long)h[1]);
    }
    ds_buffer_free(&text);
    return status;
}
