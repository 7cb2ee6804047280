/*
 * Model files: what is read can be planned or is refused with a reason, streams can be stepped, and it can be
 * written and read again as the same bytes.
 *
 * An input is a file; or, where it begins with '{', the text of one: its tensors are made up from their names,
 * which begin with type and shape ("F32_4x3", "I64_2_other"), and hold small numbers. Memory is limited, so
 * that what asks for absurdly much gets DS_NO_MEMORY. Fingerprints are not looked at where what is behind
 * them is to be found; with them the same file is refused, or read as the same.
 */
#define _POSIX_C_SOURCE 200809L
#include "buffer_sink.h"
#include "codec/safetensors.h"
#include "fuzz.h"
#include "model_cases.h"

enum { MOST_BYTES = 1 << 22, MOST_TENSORS = 32, MOST_ELEMENTS = 512, MOST_WORK = 50000 };

/* ---------------------------------------------------------------- limited memory */

static size_t n_taken;

static void *take(void *context, size_t n_bytes, size_t alignment)
{
    void *p = NULL;
    (void)context;
    if (n_bytes > MOST_BYTES || n_taken + n_bytes > 16 * (size_t)MOST_BYTES ||
        posix_memalign(&p, alignment, n_bytes) != 0) {
        return NULL;
    }
    memset(p, 0xa5, n_bytes);
    n_taken += n_bytes;
    return p;
}

static void give(void *context, void *p, size_t n_bytes)
{
    (void)context;
    n_taken -= n_bytes;
    free(p);
}

static const ds_allocator limited = {NULL, take, give};

/* ---------------------------------------------------------------- tensors by name */

typedef struct made_up {
    char name[64];
    ds_tensor_source source;
    int64_t shape[8];
} made_up;

/* Whether the name says what the tensor is: type, '_', extents with 'x' between, then the end or '_'. */
static int make_up(made_up *t, const char *name, size_t n_bytes)
{
    *t = (made_up){.name = {0}};
    if (n_bytes >= sizeof t->name)
        return 0;
    memcpy(t->name, name, n_bytes);
    char type[8] = {0}, *at = strchr(t->name, '_');
    if (at == NULL || at - t->name > 6)
        return 0;
    memcpy(type, t->name, (size_t)(at - t->name));
    if (!ds_tensor_type_find(&t->source.type, type))
        return 0;
    size_t n = 1;
    while (t->source.rank < 8 && (*at == '_' || *at == 'x') && at[1] >= '0' && at[1] <= '9') {
        const long extent = strtol(at + 1, &at, 10);
        if (extent < 0 || extent > MOST_ELEMENTS || (n *= (size_t)extent) > MOST_ELEMENTS)
            return 0;
        t->shape[t->source.rank++] = extent;
        if (*at != 'x')
            break;
    }
    return *at == 0 || *at == '_';
}

/* The file of a text; false where it is none. */
static int file_of_text(ds_buffer *file, const char *text, size_t n_bytes)
{
    static const float data[2 * MOST_ELEMENTS];
    made_up tensors[MOST_TENSORS];
    ds_tensor_source sources[MOST_TENSORS];
    size_t n = 0;
    for (size_t i = 0; i < n_bytes && n < MOST_TENSORS; i++) {
        const char *end = text[i] == '"' ? memchr(text + i + 1, '"', n_bytes - i - 1) : NULL;
        if (end == NULL || !make_up(&tensors[n], text + i + 1, (size_t)(end - text) - i - 1))
            continue;
        int twice = 0;
        for (size_t k = 0; k < n; k++)
            twice |= strcmp(tensors[k].name, tensors[n].name) == 0;
        n += twice ? 0 : 1;
    }
    for (size_t k = 0; k < n; k++) {
        sources[k] = tensors[k].source;
        sources[k].name = tensors[k].name;
        sources[k].shape = tensors[k].shape;
        sources[k].data = data;
    }
    const ds_metadata_source source = {DS_MODEL_KEY, text, n_bytes};
    const ds_sink sink = buffer_sink(file);
    return ds_safetensors_write(&sink, NULL, sources, n, &source, 1) == DS_OK;
}

/* ---------------------------------------------------------------- models */

/* Whether rates and frames are small enough to plan and run thousands of such models per second. */
static int is_small(const ds_graph *g)
{
    int64_t period = 1, features = 1;
    const ds_rate first = g->edges[g->inputs[0]].signature.rate;
    for (size_t i = 0; i < g->n_inputs; i++) {
        const ds_rate rate = g->edges[g->inputs[i]].signature.rate;
        if (ds_rate_equal(rate, first)) {
            period *= i > 0 ? 3 : 1; /* they may be apart */
        } else if (rate.num > 100 || rate.den > 100 || first.num > 100 || first.den > 100 ||
                   (period *= rate.num * rate.den * first.num * first.den) > MOST_WORK) {
            return 0;
        }
    }
    for (size_t j = 0; j < g->n_nodes; j++) {
        const ds_op *op = g->nodes[j].op;
        const ds_rate rate = g->edges[g->nodes[j].first_output].signature.rate;
        if (rate.num > MOST_WORK || rate.den > MOST_WORK)
            return 0;
        features += ds_signature_elements(&op->out[0]);
    }
    return period <= MOST_WORK && features < 1 << 16;
}

/* Steps one stream: a start, a middle, an end; what can't be (lengths, memory) is refused. */
static void step(const ds_plan *plan)
{
    static const int64_t frames[] = {1, 5, 0};
    ds_session *session = NULL;
    ds_step *batch = NULL;
    ds_slot *slot = NULL;
    int fits = ds_session_create(&session, plan, 1) == DS_OK &&
               ds_step_create(&batch, plan, NULL) == DS_OK &&
               ds_session_open(session, &slot, 0) == DS_OK;
    for (int call = 0; call < 3 && fits; call++) {
        int64_t n_frames[DS_MAX_INPUTS];
        bool bad = false;
        const bool ended = call == 2;
        for (size_t i = 0; i < plan->graph->n_inputs; i++)
            n_frames[i] = frames[call];
        fits = begin_rows(batch, &slot, n_frames, &ended, &bad, 1) == DS_OK;
        for (size_t i = 0; fits && i < plan->graph->n_inputs; i++) {
            const size_t n_bytes =
                ds_signature_bytes(&plan->graph->edges[plan->graph->inputs[i]].signature);
            if (n_frames[i] > 0)
                memset(ds_step_room(batch, i, 0), 0, n_bytes * (size_t)n_frames[i]);
        }
        if (fits && (fits = ds_step_check(batch) == DS_OK))
            ds_step_run(batch);
    }
    ds_step_destroy(batch);
    ds_session_destroy(session);
}

static void check_written(const ds_graph *graph, const ds_interface *interface)
{
    ds_buffer file = file_of(graph, interface);
    check_file(&file, graph, NULL);
    ds_buffer_free(&file);
}

/* With its fingerprint looked at: what was read without, or refused for that alone. */
static void check_fingerprint(ds_mapped *file, ds_status without)
{
    ds_graph *graph = NULL;
    ds_interface *interface = NULL;
    const ds_status status = ds_model_read(&graph, &interface, &limited, file, false);
    FUZZ_CHECK(status == without ||
               (without == DS_OK && (status == DS_FORMAT || status == DS_NO_MEMORY)));
    FUZZ_CHECK(status != DS_FORMAT || without != DS_OK ||
               strstr(ds_last_error(), "fingerprint") != NULL);
    ds_interface_free(interface);
    ds_graph_destroy(graph);
}

static void run(const void *bytes, size_t n_bytes)
{
    ds_mapped *file = NULL;
    ds_graph *graph = NULL;
    ds_interface *interface = NULL;
    FUZZ_CHECK(ds_mapped_copy(&file, NULL, bytes, n_bytes) == DS_OK);
    const ds_status status = ds_model_read(&graph, &interface, &limited, file, true);
    check_fingerprint(file, status);
    ds_mapped_release(file);
    if (status != DS_OK) {
        FUZZ_CHECK(status == DS_FORMAT || status == DS_NO_MEMORY);
        FUZZ_CHECK(ds_last_error()[0] != 0 && strpbrk(ds_last_error(), "\n\r") == NULL);
    } else {
        check_written(graph, interface);
        ds_plan *plan = NULL;
        if (!is_small(graph)) {
            ds_graph_destroy(graph);
        } else {
            const ds_status planned =
                ds_plan_create(&plan, graph, ds_kernels_for(ds_cpu_best()), interface->skew % 8, 0);
            if (planned == DS_OK) {
                if (plan->block_bytes < MOST_BYTES)
                    step(plan);
                ds_plan_destroy(plan);
            } else if (planned == DS_INTERNAL) {
                fprintf(stderr, "%s\n", ds_last_error());
                FUZZ_CHECK(planned != DS_INTERNAL);
            }
        }
    }
    ds_interface_free(interface);
    FUZZ_CHECK(n_taken == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    count_memory();
    run(data, n_bytes);
    if (n_bytes > 0 && data[0] == '{') {
        ds_buffer file;
        ds_buffer_init(&file, NULL);
        if (file_of_text(&file, (const char *)data, n_bytes))
            run(file.bytes, file.n_bytes);
        ds_buffer_free(&file);
    }
    return 0;
}
