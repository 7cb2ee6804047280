/*
 * stream_wav.c - one stream: a recording goes through a model as if it came live.
 *
 *     cc stream_wav.c -o stream_wav $(python -m dreamstream.config --cflags --libs)
 *     ./stream_wav MODEL.dsm RECORDING.wav [MILLISECONDS]
 *
 * The model has one input, of samples (dimensions ("B", "L")), at the rate of the recording, a WAV file
 * of 16-bit PCM with one channel. It is handed over in chunks of MILLISECONDS (100 unless told). Each
 * output frame is printed as soon as it is final, one line: the output's name, the frame's position,
 * its values with as many digits as it takes to tell them from any other.
 */
#include <dreamstream.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Says what went wrong, and is what a function that can't go on returns. */
static bool fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "stream_wav: %s: %s\n", what, why);
    return false;
}

/* ---- the recording -------------------------------------------------------------------------- */

typedef struct wav {
    FILE *file;
    uint32_t rate;         /* samples per second */
    uint32_t samples_left;
} wav;

/* Numbers in a WAV file have their lowest byte first, whatever this machine does. */
static uint32_t u16(const unsigned char *b)
{
    return b[0] | (uint32_t)b[1] << 8;
}

static uint32_t u32(const unsigned char *b)
{
    return u16(b) | u16(b + 2) << 16;
}

/* Reads the body of the "fmt " chunk, of which `n_bytes` are there. */
static bool read_format(wav *w, const char *path, uint32_t n_bytes)
{
    unsigned char b[16];
    if (n_bytes < sizeof b || fread(b, 1, sizeof b, w->file) != sizeof b) {
        return fail(path, "the description of its format is too short");
    }
    if (u16(b) != 1 || u16(b + 2) != 1 || u16(b + 14) != 16) {
        return fail(path, "expected 16-bit PCM with one channel");
    }
    w->rate = u32(b + 4);
    return true;
}

/* Opens the file and reads up to its first sample. What was opened, the caller closes. */
static bool open_wav(wav *w, const char *path)
{
    unsigned char b[12];
    w->file = fopen(path, "rb");
    if (w->file == NULL) {
        return fail(path, "it can't be opened");
    }
    if (fread(b, 1, 12, w->file) != 12 || memcmp(b, "RIFF", 4) != 0 ||
        memcmp(b + 8, "WAVE", 4) != 0) {
        return fail(path, "it is no WAV file");
    }
    while (fread(b, 1, 8, w->file) == 8) {
        uint32_t n_bytes = u32(b + 4);
        if (memcmp(b, "data", 4) == 0) {
            w->samples_left = n_bytes / 2;
            return w->rate != 0 || fail(path, "its samples come before their format");
        }
        const long padded = (long)n_bytes + (long)(n_bytes & 1);
        long skipped = padded;
        if (memcmp(b, "fmt ", 4) == 0) {
            if (!read_format(w, path, n_bytes)) {
                return false;
            }
            skipped -= 16;
        }
        if (fseek(w->file, skipped, SEEK_CUR) != 0) {
            break;
        }
    }
    return fail(path, "it ends before its samples");
}

/* Reads the next samples, at most `n_room`; `*n` of them, fewer only at the end. */
static bool read_wav(wav *w, const char *path, int16_t *samples, size_t n_room, size_t *n)
{
    *n = n_room < w->samples_left ? n_room : w->samples_left;
    for (size_t i = 0; i < *n; i++) {
        unsigned char b[2];
        if (fread(b, 1, 2, w->file) != 2) {
            return fail(path, "it ends before its last sample");
        }
        const int32_t sample = (int32_t)u16(b);
        samples[i] = (int16_t)(sample < 32768 ? sample : sample - 65536);
    }
    w->samples_left -= (uint32_t)*n;
    return true;
}

/* ---- the model ------------------------------------------------------------------------------ */

typedef struct player {
    wav recording;
    ds_model *model;
    ds_stream *stream;
    size_t n_outputs;
    ds_port_info *ports; /* [n_outputs] */
    ds_output *outputs;  /* [n_outputs] */
    int16_t *samples;    /* [n_samples]: one chunk */
    size_t n_samples;
} player;

/* Loads the model, and finds out what comes out of it. Afterwards the player holds what has to be
 * closed, whether or not all went well. */
static bool open_model(player *p, const char *path)
{
    if (ds_model_load(&p->model, path, NULL) != DS_OK) {
        return fail("the model", ds_last_error());
    }
    ds_model_info info = {.struct_size = sizeof info};
    ds_port_info input = {.struct_size = sizeof input};
    if (ds_model_query(p->model, &info) != DS_OK ||
        ds_model_input(p->model, 0, &input) != DS_OK) {
        return fail(path, ds_last_error());
    }
    if (info.n_inputs != 1 || input.rank != 0 || input.dtype != DS_F32) {
        return fail(path, "expected a model with one input, of dimensions (\"B\", \"L\")");
    }
    if (input.rate_num != (int64_t)p->recording.rate * input.rate_den) {
        (void)fprintf(stderr, "stream_wav: %s takes %" PRId64 "/%" PRId64 " samples per second, the "
                      "recording has %" PRIu32 "\n",
                      path, input.rate_num, input.rate_den, p->recording.rate);
        return false;
    }
    p->n_outputs = info.n_outputs;
    p->ports = calloc(p->n_outputs, sizeof *p->ports);
    p->outputs = calloc(p->n_outputs, sizeof *p->outputs);
    if (p->ports == NULL || p->outputs == NULL) {
        return fail(path, "no memory");
    }
    for (size_t k = 0; k < p->n_outputs; k++) {
        p->ports[k].struct_size = sizeof p->ports[k];
        if (ds_model_output(p->model, k, &p->ports[k]) != DS_OK) {
            return fail(path, ds_last_error());
        }
    }
    return ds_stream_open(&p->stream, p->model) == DS_OK || fail(path, ds_last_error());
}

/* Prints one frame: its axes in order, the last running fastest. */
static void print_frame(const ds_port_info *port, int64_t position, const void *frame)
{
    int64_t n = 1;
    for (uint32_t axis = 0; axis < port->rank; axis++) {
        n *= port->shape[axis];
    }
    printf("%s %" PRId64, port->name, position);
    for (int64_t i = 0; i < n; i++) {
        switch (port->dtype) {
        case DS_F32: printf(" %.9g", (double)((const float *)frame)[i]); break;
        case DS_F64: printf(" %.17g", ((const double *)frame)[i]); break;
        case DS_I64: printf(" %" PRId64, ((const int64_t *)frame)[i]); break;
        case DS_I16: printf(" %d", ((const int16_t *)frame)[i]); break;
        case DS_BOOL: printf(" %d", ((const unsigned char *)frame)[i]); break;
        }
    }
    printf("\n");
}

/* Prints the frames that the last step made final. */
static bool print_outputs(const player *p)
{
    for (size_t k = 0; k < p->n_outputs; k++) {
        const ds_output *out = &p->outputs[k];
        for (size_t i = 0; i < out->n_frames; i++) {
            const char *frame = (const char *)out->data + i * p->ports[k].frame_bytes;
            print_frame(&p->ports[k], out->start + (int64_t)i, frame);
        }
    }
    return (fflush(stdout) == 0 && !ferror(stdout)) || fail("standard output", "it takes no more");
}

/* The recording, chunk by chunk: the last one carries DS_END, and what was still held back comes out. */
static bool play(player *p, const char *path)
{
    bool last = false;
    while (!last) {
        size_t n;
        if (!read_wav(&p->recording, path, p->samples, p->n_samples, &n)) {
            return false;
        }
        last = p->recording.samples_left == 0;
        const ds_input chunk = {p->samples, n, DS_I16}; /* divided by 32768 */
        if (ds_stream_step(p->stream, p->outputs, &chunk, last ? DS_END : 0) != DS_OK) {
            return fail("a step", ds_last_error());
        }
        if (!print_outputs(p)) {
            return false;
        }
    }
    return true;
}

static bool run(player *p, const char *model, const char *recording, long milliseconds)
{
    if (!open_wav(&p->recording, recording) || !open_model(p, model)) {
        return false;
    }
    p->n_samples = (size_t)p->recording.rate * (size_t)milliseconds / 1000 + 1;
    p->samples = malloc(p->n_samples * sizeof *p->samples);
    return p->samples == NULL ? fail(recording, "no memory for a chunk") : play(p, recording);
}

int main(int argc, char **argv)
{
    const long milliseconds = argc == 4 ? strtol(argv[3], NULL, 10) : 100;
    if (argc < 3 || argc > 4 || milliseconds < 0 || milliseconds > 3600000) {
        (void)fprintf(stderr, "usage: %s MODEL.dsm RECORDING.wav [MILLISECONDS]\n", argv[0]);
        return 2;
    }
    player p = {0};
    bool good = run(&p, argv[1], argv[2], milliseconds);
    if (p.model != NULL && ds_model_close(p.model) != DS_OK) { /* and the stream with it */
        good = fail("closing", ds_last_error());
    }
    if (p.recording.file != NULL) {
        (void)fclose(p.recording.file);
    }
    free(p.ports);
    free(p.outputs);
    free(p.samples);
    return good ? 0 : 1;
}
