/* audio/wav, audio/source: every kind of sample, every kind of header, every fault in one. */
#include "wav_files.h"

static ds_wav wav;
static float samples[FILE_BYTES];

/* Opens; the bytes are copied to memory of their own, so that a sanitizer sees any read beyond. */
static unsigned char *held;
static ds_memory_source memory;

static ds_status open_bytes(const bytes *b, size_t n)
{
    free(held);
    held = malloc(n + (n == 0));
    CHECK(held != NULL);
    memcpy(held, b->data, n);
    const ds_source source = ds_source_memory(&memory, held, n);
    return ds_wav_open(&wav, &source);
}

/* All frames, `step` at a time; the status of the call that failed. */
static ds_status read_all(int64_t step, int64_t *n)
{
    *n = 0;
    for (;;) {
        int64_t got = -1;
        DS_TRY(ds_wav_read(&wav, DS_F32, samples + *n * wav.channels, step, &got));
        CHECK(got >= 0 && got <= step);
        if (got == 0) {
            return DS_OK;
        }
        *n += got;
        CHECK(*n * wav.channels <= FILE_BYTES - 64);
    }
}

static void check_samples(const recipe *r, int64_t n_frames)
{
    for (int64_t i = 0; i < n_frames * r->channels; i++) {
        CHECK(samples[i] == expected(r, (size_t)i));
    }
}

static void refused(const bytes *b, size_t n, const char *says)
{
    CHECK(open_bytes(b, n) == DS_FORMAT);
    if (strstr(ds_last_error(), says) == NULL) {
        fprintf(stderr, "expected '%s' in '%s'\n", says, ds_last_error());
    }
    CHECK(strstr(ds_last_error(), says) != NULL);
    CHECK(strstr(ds_last_error(), "offset ") != NULL);
}

/* ---------------------------------------------------------------- what is read */
static void test_samples(void)
{
    static const int kinds[][2] = {{1, 8}, {1, 16}, {1, 24}, {1, 32}, {3, 32}, {3, 64}};
    static const int64_t steps[] = {1, 3, 7, 64};
    for (int k = 0; k < 6; k++) {
        for (int channels = 1; channels <= 3; channels++) {
            for (int form = 0; form < 6; form++) {
                recipe r = plain(kinds[k][0], channels, kinds[k][1], 50);
                r.extensible = form % 2 == 1;
                if (form / 2 == 1) { /* RF64 */
                    r.riff = "RF64";
                    r.riff_size = r.data_size = UINT32_MAX;
                } else if (form / 2 == 2) { /* to the end */
                    r.riff_size = r.data_size = UINT32_MAX;
                }
                const bytes b = make(&r);
                for (int s = 0; s < 4; s++) {
                    int64_t n;
                    CHECK(open_bytes(&b, b.n) == DS_OK);
                    CHECK(wav.sample_rate == 16000 && wav.channels == channels);
                    CHECK(wav.bits == r.bits && wav.floating == (r.format == 3));
                    CHECK(wav.frames == (form / 2 == 2 ? -1 : 50));
                    CHECK(read_all(steps[s], &n) == DS_OK && n == 50);
                    check_samples(&r, n);
                    CHECK(read_all(steps[s], &n) == DS_OK && n == 0);
                }
            }
        }
    }
    CHECK(expected(&(recipe){.format = 1, .bits = 16}, 0) == -1.0f);
    CHECK(expected(&(recipe){.format = 1, .bits = 16}, 1) == 32767.0f / 32768.0f);
    CHECK(expected(&(recipe){.format = 1, .bits = 8}, 1) == 127.0f / 128.0f);
}

static void test_int16(void)
{
    for (int bits = 8; bits <= 16; bits += 8) {
        const recipe r = plain(1, 2, bits, 40);
        const bytes b = make(&r);
        int16_t exact[80];
        int64_t n;
        CHECK(open_bytes(&b, b.n) == DS_OK);
        CHECK(ds_wav_read(&wav, DS_I16, exact, 40, &n) == DS_OK && n == 40);
        for (size_t i = 0; i < 80; i++) {
            CHECK((float)exact[i] == 32768.0f * expected(&r, i));
        }
    }
    static const int others[][2] = {{1, 24}, {1, 32}, {3, 32}};
    for (int k = 0; k < 3; k++) {
        const recipe r = plain(others[k][0], 1, others[k][1], 4);
        const bytes b = make(&r);
        int16_t exact[4];
        int64_t n;
        CHECK(open_bytes(&b, b.n) == DS_OK);
        CHECK(ds_wav_read(&wav, DS_I16, exact, 4, &n) == DS_DTYPE);
        CHECK(ds_wav_read(&wav, DS_F64, exact, 4, &n) == DS_DTYPE);
        CHECK(read_all(4, &n) == DS_OK && n == 4);
    }
}

static void test_lengths(void)
{
    int64_t n;
    /* no frames: certain where something follows, open where nothing does */
    recipe r = plain(1, 1, 16, 0);
    bytes b = make(&r);
    CHECK(open_bytes(&b, b.n) == DS_OK && wav.frames == 0);
    CHECK(read_all(5, &n) == DS_OK && n == 0);
    r.n_samples = 9;
    r.riff_size = (uint32_t)b.n - 8;
    b = make(&r);
    CHECK(open_bytes(&b, b.n) == DS_OK && wav.frames == -1);
    CHECK(read_all(4, &n) == DS_OK && n == 9);
    check_samples(&r, 9);
    static const uint32_t unknown[] = {0, UINT32_MAX};
    for (int i = 0; i < 2; i++) {
        r.riff_size = unknown[i];
        b = make(&r);
        CHECK(open_bytes(&b, b.n) == DS_OK && wav.frames == -1);
        CHECK(read_all(4, &n) == DS_OK && n == 9);
    }
    /* half a frame at the end is none */
    r.data_size = UINT32_MAX;
    b = make(&r);
    CHECK(open_bytes(&b, b.n - 1) == DS_OK);
    CHECK(read_all(4, &n) == DS_OK && n == 8);
    r.data_size = 17;
    b = make(&r);
    CHECK(open_bytes(&b, b.n) == DS_OK && wav.frames == 8);
    /* a recording of 2^40 frames that ends early: what is there, then the fault */
    r.riff = "RF64";
    r.data_size = UINT32_MAX;
    b = make(&r);
    memcpy(b.data + 12 + 8 + 8, "\0\0\0\0\0\2\0\0", 8);
    CHECK(open_bytes(&b, b.n) == DS_OK && wav.frames == (int64_t)1 << 40);
    CHECK(read_all(4, &n) == DS_FORMAT && n == 9);
    CHECK(strstr(ds_last_error(), "the recording ends") != NULL);
    memcpy(b.data + 12 + 8 + 8, "\377\377\377\377\377\377\377\377", 8);
    CHECK(open_bytes(&b, b.n) == DS_OK && wav.frames == -1);
    memcpy(b.data + 12 + 8 + 8, "\377\377\377\377\377\377\377\376", 8);
    refused(&b, b.n, "at most 2^62 bytes, got 18374686479671623679");
}

static void test_large_frames(void)
{
    recipe r = plain(1, 65535, 8, 0);
    r.data_size = 2 * 65535;
    const bytes b = make(&r);
    unsigned char *all = calloc(1, b.n + 2 * 65535);
    float *wide_frames = malloc(2 * 65535 * sizeof(float));
    int64_t n;
    CHECK(all != NULL && wide_frames != NULL);
    memcpy(all, b.data, b.n);
    const ds_source source = ds_source_memory(&memory, all, b.n + 2 * 65535);
    CHECK(ds_wav_open(&wav, &source) == DS_OK && wav.channels == 65535);
    CHECK(ds_wav_read(&wav, DS_F32, wide_frames, 2, &n) == DS_OK && n == 2);
    CHECK(wide_frames[0] == -1.0f && wide_frames[2 * 65535 - 1] == -1.0f);
    free(all);
    free(wide_frames);
}

/* ---------------------------------------------------------------- what is refused */
static void test_refused(void)
{
    recipe r = plain(1, 2, 16, 10);
    bytes b = make(&r);
    const size_t format = 12 + 16 + 8; /* of its first byte */
    refused(&b, 0, "expected 12 more bytes of a RIFF header");
    b.data[0] = '\n';
    refused(&b, b.n, "got '?IFF'");
    b = make(&r);
    b.data[8] = 'A';
    refused(&b, b.n, "expected a form 'WAVE', got 'AAVE'");
    const struct {
        size_t at;
        unsigned char value;
        const char *says;
    } faults[] = {
        {0, 0x55, "got format 0x0055"},       {2, 0, "expected at least 1 channel, got 0"},
        {2, 3, "expected frames of 6 bytes"}, {12, 2, "(2 channels of 16 bits), got 2"},
        {14, 12, "24 or 32 bits, got 12"},    {14, 0, "24 or 32 bits, got 0"},
        {14, 64, "24 or 32 bits, got 64"},    {0, 3, "floating-point bits, got 16"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        b = make(&r);
        b.data[format + faults[i].at] = faults[i].value;
        refused(&b, b.n, faults[i].says);
    }
    b = make(&r);
    memset(b.data + format + 4, 0, 4);
    refused(&b, b.n, "expected a sample rate, got 0");
    b = make(&r);
    b.data[format - 4] = 15;
    refused(&b, b.n, "of 16 bytes or more, got 15");
    b = make(&r);
    memcpy(b.data + format - 8, "fnt ", 4);
    refused(&b, b.n, "expected a chunk 'fmt ' before 'data'");
    memcpy(b.data + b.n - 48, "dada", 4);
    refused(&b, b.n, "expected a chunk 'data', but the recording ends");
    b = make(&r);
    memset(b.data + 12 + 4, 0xFF, 4); /* of LIST */
    refused(&b, b.n, "more bytes of a chunk before 'data'");

    r.extensible = true;
    const struct {
        size_t at;
        unsigned char value;
        const char *says;
    } extended[] = {{16, 21, "an extension of 22 bytes, got 21"},
                    {18, 17, "at most 16 valid bits in a sample, got 17"},
                    {24, 6, "got format 0x0006"},
                    {31, 7, "a sub-format of WAVE's"}};
    for (size_t i = 0; i < 4; i++) {
        b = make(&r);
        b.data[format + extended[i].at] = extended[i].value;
        refused(&b, b.n, extended[i].says);
    }
    b = make(&r);
    b.data[format - 4] = 38;
    refused(&b, b.n, "of 40 bytes or more, got 38");
    r.extensible = false;
    r.riff = "RF64";
    b = make(&r);
    b.data[12] = 'D';
    refused(&b, b.n, "expected a chunk 'ds64' of 28 bytes or more, got 'Ds64' of 28");
    b = make(&r);
    b.data[16] = 27;
    refused(&b, b.n, "got 'ds64' of 27");
    b = (bytes){.n = 0};
    put_text(&b, "RIFF");
    put(&b, 100, 4);
    put_text(&b, "WAVE");
    r = plain(1, 1, 16, 0);
    put_format(&b, &r);
    put_format(&b, &r);
    refused(&b, b.n, "one chunk 'fmt ', got a second");
}

/* ---------------------------------------------------------------- anything at all */
static const recipe *all_recipes(size_t i)
{
    static recipe recipes[4];
    recipes[0] = plain(1, 2, 16, 20);
    recipes[1] = plain(3, 1, 64, 20);
    recipes[1].extensible = true;
    recipes[2] = plain(1, 3, 24, 20);
    recipes[2].riff = "RF64";
    recipes[2].data_size = UINT32_MAX;
    recipes[3] = plain(1, 1, 8, 20);
    recipes[3].data_size = UINT32_MAX;
    return i < 4 ? &recipes[i] : NULL;
}

/* Reads what can be read; no status but these two. */
static void try_bytes(const bytes *b, size_t n)
{
    const ds_status status = open_bytes(b, n);
    CHECK(status == DS_OK || status == DS_FORMAT);
    if (status != DS_OK) {
        return;
    }
    CHECK(wav.channels >= 1 && wav.channels <= 65535 && wav.frames >= -1);
    for (int i = 0; i < 100; i++) {
        int64_t got;
        const ds_status read = ds_wav_read(&wav, DS_F32, samples, FILE_BYTES / wav.channels, &got);
        CHECK(read == DS_OK || read == DS_FORMAT);
        if (read != DS_OK || got == 0) {
            return;
        }
    }
    CHECK(FILE_BYTES < wav.channels);
}

static void test_truncated_everywhere(void)
{
    const recipe *r;
    for (size_t i = 0; (r = all_recipes(i)) != NULL; i++) {
        const bytes b = make(r);
        const size_t frame = (size_t)(r->channels * (r->bits / 8)), header = b.n - 20 * frame;
        for (size_t n = 0; n <= b.n; n++) {
            int64_t got;
            const bool open = r->data_size == UINT32_MAX && r->riff[1] == 'I';
            CHECK(open_bytes(&b, n) == (n < header ? DS_FORMAT : DS_OK));
            if (n >= header) {
                CHECK(read_all(3, &got) == (n < b.n && !open ? DS_FORMAT : DS_OK));
                CHECK(got == (int64_t)((n - header) / frame));
                check_samples(r, got);
            }
        }
    }
}

static void test_mutated_everywhere(void)
{
    const recipe *r;
    uint32_t random = 1;
    for (size_t i = 0; (r = all_recipes(i)) != NULL; i++) {
        const bytes good = make(r);
        const size_t header = good.n - 20 * (size_t)(r->channels * (r->bits / 8));
        for (size_t at = 0; at < header; at++) {
            for (int value = 0; value < 256; value++) {
                bytes b = good;
                b.data[at] = (unsigned char)value;
                try_bytes(&b, b.n);
            }
        }
        for (int k = 0; k < 20000; k++) { /* several at once */
            bytes b = good;
            for (int j = 0; j < 1 + k % 5; j++) {
                random = random * 1664525u + 1013904223u;
                b.data[(random >> 8) % header] = (unsigned char)(k % 3 == 0 ? 0xFF : random >> 24);
            }
            try_bytes(&b, b.n);
        }
    }
}

/* ---------------------------------------------------------------- files */
static void test_file(void)
{
    const recipe r = plain(1, 2, 16, 300);
    const bytes b = make(&r);
    FILE *file = tmpfile();
    int64_t n;
    CHECK(file != NULL && fwrite(b.data, 1, b.n, file) == b.n);
    rewind(file);
    const ds_source source = ds_source_file(file);
    CHECK(ds_wav_open(&wav, &source) == DS_OK && wav.frames == 300);
    CHECK(read_all(77, &n) == DS_OK && n == 300);
    check_samples(&r, n);
    fclose(file);

    file = fopen("/", "rb"); /* opens, but can't be read */
    if (file != NULL) {
        const ds_source folder = ds_source_file(file);
        CHECK(ds_wav_open(&wav, &folder) == DS_FORMAT);
        CHECK(strstr(ds_last_error(), "cannot be read") != NULL);
        fclose(file);
    }
}

static ds_status fail(void *context, void *to, size_t n, size_t *n_read)
{
    (void)to;
    (void)n;
    (void)n_read;
    return ds_fail(*(ds_status *)context, "the line is dead");
}

static void test_source_fails(void)
{
    ds_status status = DS_CLOSED;
    const recipe r = plain(1, 1, 16, 10);
    const bytes b = make(&r);
    const ds_source source = {.read = fail, .context = &status};
    int64_t n;
    CHECK(ds_wav_open(&wav, &source) == DS_CLOSED);
    CHECK(open_bytes(&b, b.n) == DS_OK);
    wav.source = source;
    CHECK(ds_wav_read(&wav, DS_F32, samples, 4, &n) == DS_CLOSED);
    CHECK(strcmp(ds_last_error(), "the line is dead") == 0);
}

int main(void)
{
    test_samples();
    test_int16();
    test_lengths();
    test_large_frames();
    test_refused();
    test_truncated_everywhere();
    test_mutated_everywhere();
    test_file();
    test_source_fails();
    free(held);
    return check_report();
}
