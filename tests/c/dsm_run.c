/*
 * Drives the C API by a script, for comparison with Python:
 *
 *     dsm_run MODEL IN OUT THREADS < SCRIPT
 *
 * Input j of stream NAME is the file IN/NAME.j (raw frames, read from where the stream is); what comes out
 * of output k is appended to OUT/NAME.k, and the frames of every step to OUT/NAME.counts. Lines of SCRIPT:
 *
 *     open NAME | fork NAME NEW | reset NAME | close NAME
 *     step {NAME FLAGS N,N,...}...     a batch: FLAGS 0 to 3, N frames of each input
 *     finish NAME
 *     snapshot NAME FILE | restore NAME FILE
 *     save FILE                        the model, by ds_model_save
 *     reload FILE                      the model, by ds_model_load_memory: closes all streams
 *     fails STATUS LINE                LINE, which must fail with a message
 *
 * Compiled as a stranger would: against the installed header and library.
 */
#include <dreamstream.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STREAMS = 64, MAX_PORTS = 8, MAX_WORDS = 200 };

typedef struct named {
    char name[32];
    ds_stream *stream; /* NULL: free */
} named;

static struct {
    const char *in, *out;
    ds_model *model;
    ds_model_options options;
    size_t n_inputs, n_outputs, in_bytes[MAX_PORTS], out_bytes[MAX_PORTS];
    named streams[MAX_STREAMS];
} run;

static void stop(const char *what, const char *why)
{
    (void)fprintf(stderr, "dsm_run: %s: %s\n", what, why);
    exit(3);
}

static void *room(size_t n_bytes)
{
    void *p = malloc(n_bytes ? n_bytes : 1);
    if (p == NULL)
        stop("malloc", "no memory");
    return p;
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (file == NULL)
        stop(path, "can't be opened");
    return file;
}

static FILE *open_port(const char *folder, const char *name, const char *suffix, const char *mode)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s.%s", folder, name, suffix) >= (int)sizeof path)
        stop(name, "its path is too long");
    return open_file(path, mode);
}

static void *read_all(const char *path, size_t *n_bytes)
{
    FILE *file = open_file(path, "rb");
    if (fseek(file, 0, SEEK_END) != 0)
        stop(path, "can't be read");
    *n_bytes = (size_t)ftell(file);
    rewind(file);
    void *bytes = room(*n_bytes);
    if (fread(bytes, 1, *n_bytes, file) != *n_bytes)
        stop(path, "can't be read");
    (void)fclose(file);
    return bytes;
}

static int write_piece(void *file, const void *bytes, size_t n_bytes)
{
    return fwrite(bytes, 1, n_bytes, file) != n_bytes;
}

static named *find(const char *name)
{
    for (size_t i = 0; i < MAX_STREAMS; i++)
        if (run.streams[i].stream != NULL && strcmp(run.streams[i].name, name) == 0)
            return &run.streams[i];
    stop(name, "there is no such stream");
    return NULL;
}

static void add(const char *name, ds_stream *stream)
{
    for (size_t i = 0; i < MAX_STREAMS; i++) {
        if (run.streams[i].stream == NULL) {
            run.streams[i].stream = stream;
            (void)snprintf(run.streams[i].name, sizeof run.streams[i].name, "%s", name);
            return;
        }
    }
    stop(name, "too many streams");
}

/* ---- the model ------------------------------------------------------------------------------ */

static ds_status learn_ports(void)
{
    ds_model_info info = {.struct_size = sizeof info};
    ds_port_info port = {.struct_size = sizeof port};
    DS_TRY(ds_model_query(run.model, &info));
    run.n_inputs = info.n_inputs;
    run.n_outputs = info.n_outputs;
    if (info.n_inputs > MAX_PORTS || info.n_outputs > MAX_PORTS)
        stop("the model", "too many inputs or outputs");
    for (size_t j = 0; j < info.n_inputs; j++) {
        DS_TRY(ds_model_input(run.model, j, &port));
        run.in_bytes[j] = port.frame_bytes;
    }
    for (size_t k = 0; k < info.n_outputs; k++) {
        DS_TRY(ds_model_output(run.model, k, &port));
        run.out_bytes[k] = port.frame_bytes;
    }
    return DS_OK;
}

static ds_status save(const char *path)
{
    FILE *file = open_file(path, "wb");
    const ds_status status = ds_model_save(run.model, write_piece, file);
    if (fclose(file) != 0)
        stop(path, "can't be written");
    return status;
}

static ds_status reload(const char *path)
{
    size_t n_bytes;
    void *bytes = read_all(path, &n_bytes);
    ds_model *model = NULL;
    const ds_status status = ds_model_load_memory(&model, bytes, n_bytes, &run.options);
    memset(bytes, 0xAA, n_bytes); /* nothing of it is kept */
    free(bytes);
    DS_TRY(status);
    DS_TRY(ds_model_close(run.model));
    memset(run.streams, 0, sizeof run.streams);
    run.model = model;
    return learn_ports();
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The next frames of all inputs, from where the stream is; the caller frees the data. */
static ds_status read_chunks(const named *s, char *counts, ds_input *inputs)
{
    char *rest = counts;
    for (size_t j = 0; j < run.n_inputs; j++) {
        char suffix[24];
        int64_t at;
        (void)snprintf(suffix, sizeof suffix, "%zu", j);
        const size_t n = strtoul(rest, &rest, 10);
        rest += *rest == ',';
        DS_TRY(ds_stream_frames(s->stream, j, &at));
        char *data = room(n * run.in_bytes[j]);
        inputs[j] = (ds_input){data, n, 0};
        FILE *file = open_port(run.in, s->name, suffix, "rb");
        if (fseek(file, (long)((size_t)at * run.in_bytes[j]), SEEK_SET) != 0 ||
            fread(data, run.in_bytes[j], n, file) != n) {
            stop(s->name, "its input file is too short");
        }
        (void)fclose(file);
    }
    return DS_OK;
}

static void write_outputs(const named *s, const ds_output *outputs)
{
    FILE *counts = open_port(run.out, s->name, "counts", "ab");
    for (size_t k = 0; k < run.n_outputs; k++) {
        char suffix[24];
        (void)snprintf(suffix, sizeof suffix, "%zu", k);
        FILE *file = open_port(run.out, s->name, suffix, "ab");
        const size_t n = outputs[k].n_frames;
        if ((uintptr_t)outputs[k].data % 64 != 0)
            stop(s->name, "an output is not aligned");
        if (fwrite(outputs[k].data, run.out_bytes[k], n, file) != n || fclose(file) != 0)
            stop(s->name, "its output can't be written");
        (void)fprintf(counts, "%" PRId64 "+%zu ", outputs[k].start, n);
    }
    (void)fprintf(counts, "\n");
    (void)fclose(counts);
}

static ds_status step(char **words, size_t n_words)
{
    const size_t n = n_words / 3;
    ds_stream *streams[MAX_STREAMS];
    uint32_t flags[MAX_STREAMS];
    ds_input inputs[MAX_STREAMS * MAX_PORTS];
    ds_output outputs[MAX_STREAMS * MAX_PORTS];
    ds_status status = DS_OK;
    memset(inputs, 0, sizeof inputs);
    for (size_t i = 0; status == DS_OK && i < n; i++) {
        const named *s = find(words[3 * i]);
        streams[i] = s->stream;
        flags[i] = (uint32_t)strtoul(words[3 * i + 1], NULL, 10);
        status = read_chunks(s, words[3 * i + 2], &inputs[i * run.n_inputs]);
    }
    if (status == DS_OK) {
        status = n == 1 ? ds_stream_step(streams[0], outputs, inputs, flags[0])
                        : ds_model_step(run.model, streams, outputs, inputs, flags, n);
    }
    for (size_t i = 0; i < n * run.n_inputs; i++)
        free((void *)(uintptr_t)inputs[i].data);
    for (size_t i = 0; status == DS_OK && i < n; i++)
        write_outputs(find(words[3 * i]), &outputs[i * run.n_outputs]);
    return status;
}

static ds_status finish(const named *s)
{
    ds_output outputs[MAX_PORTS];
    DS_TRY(ds_stream_finish(s->stream, outputs));
    write_outputs(s, outputs);
    return DS_OK;
}

/* ---- snapshots ------------------------------------------------------------------------------ */

static ds_status take_snapshot(const named *s, const char *path)
{
    size_t n_bytes;
    DS_TRY(ds_stream_snapshot_size(s->stream, &n_bytes));
    void *bytes = room(n_bytes);
    const ds_status status = ds_stream_snapshot(s->stream, bytes, n_bytes);
    if (status == DS_OK) {
        FILE *file = open_file(path, "wb");
        if (fwrite(bytes, 1, n_bytes, file) != n_bytes || fclose(file) != 0)
            stop(path, "can't be written");
    }
    free(bytes);
    return status;
}

static ds_status restore(const named *s, const char *path)
{
    size_t n_bytes;
    void *bytes = read_all(path, &n_bytes);
    const ds_status status = ds_stream_restore(s->stream, bytes, n_bytes);
    free(bytes);
    return status;
}

/* ---- the script ----------------------------------------------------------------------------- */

static ds_status close_stream(named *s)
{
    DS_TRY(ds_stream_close(s->stream));
    s->stream = NULL;
    return DS_OK;
}

static ds_status open_or_fork(const char *name, const named *source)
{
    ds_stream *stream = NULL;
    DS_TRY(source ? ds_stream_fork(&stream, source->stream) : ds_stream_open(&stream, run.model));
    add(name, stream);
    return DS_OK;
}

static ds_status execute(char **words, size_t n)
{
    const char *what = words[0];
    if (strcmp(what, "step") == 0)
        return step(words + 1, n - 1);
    if (n == 2) {
        if (strcmp(what, "open") == 0)
            return open_or_fork(words[1], NULL);
        if (strcmp(what, "save") == 0)
            return save(words[1]);
        if (strcmp(what, "reload") == 0)
            return reload(words[1]);
        if (strcmp(what, "reset") == 0)
            return ds_stream_reset(find(words[1])->stream);
        if (strcmp(what, "close") == 0)
            return close_stream(find(words[1]));
        if (strcmp(what, "finish") == 0)
            return finish(find(words[1]));
    }
    if (n == 3) {
        if (strcmp(what, "fork") == 0)
            return open_or_fork(words[2], find(words[1]));
        if (strcmp(what, "snapshot") == 0)
            return take_snapshot(find(words[1]), words[2]);
        if (strcmp(what, "restore") == 0)
            return restore(find(words[1]), words[2]);
    }
    stop(what, "no such line");
    return DS_INTERNAL;
}

static void run_line(char *line)
{
    char *words[MAX_WORDS];
    size_t n = 0;
    for (char *w = strtok(line, " \n"); w != NULL && n < MAX_WORDS; w = strtok(NULL, " \n"))
        words[n++] = w;
    if (n == 0)
        return;
    if (n > 2 && strcmp(words[0], "fails") == 0) {
        const ds_status status = execute(words + 2, n - 2);
        if (strcmp(ds_status_name(status), words[1]) != 0 || *ds_last_error() == 0)
            stop(words[2], ds_status_name(status));
        printf("%s\n", ds_last_error());
    } else if (execute(words, n) != DS_OK) {
        stop(words[0], ds_last_error());
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        stop("usage", "dsm_run MODEL IN OUT THREADS < SCRIPT");
    run.in = argv[2];
    run.out = argv[3];
    run.options = (ds_model_options)DS_MODEL_OPTIONS_INIT;
    run.options.threads = (uint32_t)strtoul(argv[4], NULL, 10);
    if (ds_model_load(&run.model, argv[1], &run.options) != DS_OK || learn_ports() != DS_OK)
        stop(argv[1], ds_last_error());
    static char line[65536];
    while (fgets(line, sizeof line, stdin) != NULL)
        run_line(line);
    if (ds_model_close(run.model) != DS_OK)
        stop("close", ds_last_error());
    return 0;
}
