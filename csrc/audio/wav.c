/* audio/wav.c: the header, and the frames behind it. */
#include "audio/wav.h"

#include <string.h>

#include "audio/samples.h"
#include "cpu/float_env.h"

enum { PCM = 1, IEEE_FLOAT = 3, EXTENSIBLE = 0xFFFE };

/* Sizes that a recorder leaves which does not know them. */
#define OPEN_32 UINT32_MAX
#define OPEN_64 UINT64_MAX

/* The tail of a sub-format's GUID, behind the two bytes of the format. */
static const unsigned char guid_tail[14] = {0x00, 0x00, 0x00, 0x00, 0x10, 0x00, 0x80,
                                            0x00, 0x00, 0xAA, 0x00, 0x38, 0x9B, 0x71};

/* What a chunk begins with. */
typedef struct chunk {
    char id[5];
    uint32_t n_bytes;
    int64_t offset;
} chunk;

/* What has been read of the header. */
typedef struct header {
    bool is_64, has_format;
    uint64_t riff_bytes, data_bytes; /* behind the RIFF chunk's own head; from ds64 where is_64 */
} header;

static uint32_t u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const unsigned char *p)
{
    return u16(p) | u16(p + 2) << 16;
}

static uint64_t u64(const unsigned char *p)
{
    return (uint64_t)u32(p) | (uint64_t)u32(p + 4) << 32;
}

/* ---------------------------------------------------------------- bytes */
/* Up to n bytes into the buffer. */
static ds_status take(ds_wav *wav, size_t n, size_t *n_read)
{
    DS_TRY(wav->source.read(wav->source.context, wav->buffer, n, n_read));
    DS_ASSERT(*n_read <= n);
    wav->offset += (int64_t)*n_read;
    return DS_OK;
}

/* Exactly n bytes into the buffer. */
static ds_status take_all(ds_wav *wav, size_t n, const char *what)
{
    size_t n_read = 0;
    DS_TRY(take(wav, n, &n_read));
    DS_CHECK(n_read == n, DS_FORMAT,
             "offset %lld: expected %zu more bytes of %s, but the recording ends",
             (long long)wav->offset, n - n_read, what);
    return DS_OK;
}

static ds_status skip(ds_wav *wav, uint64_t n, const char *what)
{
    while (n > 0) {
        const size_t part = n < DS_WAV_BUFFER_BYTES ? (size_t)n : DS_WAV_BUFFER_BYTES;
        DS_TRY(take_all(wav, part, what));
        n -= part;
    }
    return DS_OK;
}

/* An id for messages: what is no printable character becomes '?'. */
static void copy_id(char *id, const unsigned char *bytes)
{
    for (int i = 0; i < 4; i++)
        id[i] = (char)(bytes[i] >= 0x20 && bytes[i] < 0x7F ? bytes[i] : '?');
    id[4] = '\0';
}

static ds_status next_chunk(ds_wav *wav, chunk *c)
{
    size_t n_read = 0;
    c->offset = wav->offset;
    DS_TRY(take(wav, 8, &n_read));
    DS_CHECK(n_read == 8, DS_FORMAT, "offset %lld: expected a chunk 'data', but the recording ends",
             (long long)wav->offset);
    copy_id(c->id, wav->buffer);
    c->n_bytes = u32(wav->buffer + 4);
    return DS_OK;
}

/* ---------------------------------------------------------------- chunks */
static ds_status read_riff(ds_wav *wav, header *h)
{
    char id[5];
    DS_TRY(take_all(wav, 12, "a RIFF header"));
    copy_id(id, wav->buffer);
    h->is_64 = strcmp(id, "RF64") == 0 || strcmp(id, "BW64") == 0;
    DS_CHECK(h->is_64 || strcmp(id, "RIFF") == 0, DS_FORMAT,
             "offset 0: expected a WAV file ('RIFF', 'RF64' or 'BW64'), got '%s'", id);
    h->riff_bytes = u32(wav->buffer + 4);
    copy_id(id, wav->buffer + 8);
    DS_CHECK(strcmp(id, "WAVE") == 0, DS_FORMAT, "offset 8: expected a form 'WAVE', got '%s'", id);
    return DS_OK;
}

/* The sizes that do not fit into 32 bits; a table of other chunks' sizes is not needed. */
static ds_status read_ds64(ds_wav *wav, header *h)
{
    chunk c;
    DS_TRY(next_chunk(wav, &c));
    DS_CHECK(strcmp(c.id, "ds64") == 0 && c.n_bytes >= 28, DS_FORMAT,
             "offset %lld: expected a chunk 'ds64' of 28 bytes or more, got '%s' of %lu",
             (long long)c.offset, c.id, (unsigned long)c.n_bytes);
    DS_TRY(take_all(wav, 28, "the chunk 'ds64'"));
    h->riff_bytes = u64(wav->buffer);
    h->data_bytes = u64(wav->buffer + 8);
    return skip(wav, (uint64_t)c.n_bytes - 28 + c.n_bytes % 2, "the chunk 'ds64'");
}

/* The format behind a WAVE_FORMAT_EXTENSIBLE: the first bytes of its GUID. */
static ds_status read_extension(ds_wav *wav, const chunk *c, uint32_t *format)
{
    const unsigned char *p = wav->buffer;
    DS_CHECK(c->n_bytes >= 40, DS_FORMAT,
             "offset %lld: expected an extensible chunk 'fmt ' of 40 bytes or more, got %lu",
             (long long)c->offset, (unsigned long)c->n_bytes);
    DS_CHECK(u16(p + 16) >= 22, DS_FORMAT,
             "offset %lld: expected an extension of 22 bytes, got %lu",
             (long long)c->offset + 8 + 16, (unsigned long)u16(p + 16));
    DS_CHECK(memcmp(p + 26, guid_tail, sizeof guid_tail) == 0, DS_FORMAT,
             "offset %lld: expected a sub-format of WAVE's, got another", (long long)c->offset + 8 + 24);
    DS_CHECK(u16(p + 18) <= u16(p + 14), DS_FORMAT,
             "offset %lld: expected at most %lu valid bits in a sample, got %lu",
             (long long)c->offset + 8 + 18, (unsigned long)u16(p + 14), (unsigned long)u16(p + 18));
    *format = u16(p + 24);
    return DS_OK;
}

static ds_status read_format(ds_wav *wav, header *h, const chunk *c)
{
    const unsigned char *p = wav->buffer;
    const long long at = (long long)c->offset + 8;
    DS_CHECK(!h->has_format, DS_FORMAT, "offset %lld: expected one chunk 'fmt ', got a second",
             (long long)c->offset);
    DS_CHECK(c->n_bytes >= 16, DS_FORMAT,
             "offset %lld: expected a chunk 'fmt ' of 16 bytes or more, got %lu",
             (long long)c->offset, (unsigned long)c->n_bytes);
    const size_t n = c->n_bytes < 40 ? c->n_bytes : 40;
    DS_TRY(take_all(wav, n, "the chunk 'fmt '"));
    uint32_t format = u16(p);
    if (format == EXTENSIBLE)
        DS_TRY(read_extension(wav, c, &format));
    wav->channels = u16(p + 2);
    wav->sample_rate = u32(p + 4);
    wav->frame_bytes = u16(p + 12);
    wav->bits = (int)u16(p + 14);
    wav->floating = format == IEEE_FLOAT;
    DS_CHECK(
        format == PCM || format == IEEE_FLOAT, DS_FORMAT,
        "offset %lld: expected integer (0x0001) or floating-point (0x0003) samples, got format "
        "0x%04lX",
        at, (unsigned long)format);
    DS_CHECK(wav->channels > 0, DS_FORMAT, "offset %lld: expected at least 1 channel, got 0",
             at + 2);
    DS_CHECK(wav->sample_rate > 0, DS_FORMAT, "offset %lld: expected a sample rate, got 0", at + 4);
    const bool known = wav->floating ? wav->bits == 32 || wav->bits == 64
                                     : wav->bits % 8 == 0 && wav->bits >= 8 && wav->bits <= 32;
    DS_CHECK(known, DS_FORMAT, "offset %lld: expected samples of %s bits, got %d", at + 14,
             wav->floating ? "32 or 64 floating-point" : "8, 16, 24 or 32", wav->bits);
    DS_CHECK(wav->frame_bytes == wav->channels * (wav->bits / 8), DS_FORMAT,
             "offset %lld: expected frames of %lld bytes (%lld channels of %d bits), got %lld",
             at + 12, (long long)wav->channels * (wav->bits / 8), (long long)wav->channels,
             wav->bits, (long long)wav->frame_bytes);
    h->has_format = true;
    return skip(wav, (uint64_t)c->n_bytes - n + c->n_bytes % 2, "the chunk 'fmt '");
}

static ds_status begin_data(ds_wav *wav, const header *h, const chunk *c)
{
    DS_CHECK(h->has_format, DS_FORMAT, "offset %lld: expected a chunk 'fmt ' before 'data'",
             (long long)c->offset);
    const bool from_ds64 = h->is_64 && c->n_bytes == OPEN_32;
    const uint64_t n_bytes = from_ds64 ? h->data_bytes : c->n_bytes;
    /* where the RIFF chunk goes on behind an empty data chunk, it is empty indeed */
    const bool goes_on = h->riff_bytes != OPEN_32 && h->riff_bytes != OPEN_64 &&
                         h->riff_bytes > (uint64_t)wav->offset - 8;
    const bool is_open = n_bytes == (from_ds64 ? OPEN_64 : OPEN_32) || (n_bytes == 0 && !goes_on);
    DS_CHECK(is_open || n_bytes <= INT64_MAX / 2, DS_FORMAT,
             "offset %lld: expected a chunk 'data' of at most 2^62 bytes, got %llu", (long long)c->offset,
             (unsigned long long)n_bytes);
    wav->frames = is_open ? -1 : (int64_t)n_bytes / wav->frame_bytes;
    return DS_OK;
}

ds_status ds_wav_open(ds_wav *wav, const ds_source *source)
{
    header h = {.is_64 = false};
    chunk c;
    wav->source = *source;
    wav->offset = 0;
    wav->position = 0;
    DS_TRY(read_riff(wav, &h));
    if (h.is_64)
        DS_TRY(read_ds64(wav, &h));
    for (;;) {
        DS_TRY(next_chunk(wav, &c));
        if (strcmp(c.id, "data") == 0)
            return begin_data(wav, &h, &c);
        if (strcmp(c.id, "fmt ") == 0)
            DS_TRY(read_format(wav, &h, &c));
        else
            DS_TRY(skip(wav, (uint64_t)c.n_bytes + c.n_bytes % 2, "a chunk before 'data'"));
    }
}

/* ---------------------------------------------------------------- frames */
ds_status ds_wav_read(ds_wav *wav, ds_dtype dtype, void *samples, int64_t n_frames, int64_t *n_read)
{
    DS_CHECK(dtype == DS_F32 || dtype == DS_I16, DS_DTYPE,
             "samples are given as float32 or int16 only");
    DS_CHECK(dtype == DS_F32 || (!wav->floating && wav->bits <= 16), DS_DTYPE,
             "int16 samples come from integers of 8 or 16 bits, but these have %d%s; read float32",
             wav->bits, wav->floating ? " of floating point" : "");
    const size_t sample_bytes = dtype == DS_F32 ? sizeof(float) : sizeof(int16_t);
    const int64_t per_block = DS_WAV_BUFFER_BYTES / wav->frame_bytes;
    char *to = samples;
    *n_read = 0;
    if (wav->frames >= 0 && n_frames > wav->frames - wav->position)
        n_frames = wav->frames - wav->position;
    while (*n_read < n_frames) {
        const int64_t wanted = n_frames - *n_read < per_block ? n_frames - *n_read : per_block;
        size_t n_bytes = 0;
        DS_TRY(take(wav, (size_t)(wanted * wav->frame_bytes), &n_bytes));
        const int64_t got = (int64_t)n_bytes / wav->frame_bytes;
        DS_CHECK(got == wanted || *n_read + got > 0 || wav->frames < 0, DS_FORMAT,
                 "offset %lld: expected %lld more frames of %lld, but the recording ends",
                 (long long)wav->offset, (long long)(wav->frames - wav->position),
                 (long long)wav->frames);
        const size_t n = (size_t)(got * wav->channels);
        ds_float_env callers;
        ds_float_env_enter(&callers); /* some are rounded */
        if (dtype == DS_F32)
            ds_samples_to_float((float *)(void *)to, wav->buffer, n, wav->bits, wav->floating);
        else
            ds_samples_to_int16((int16_t *)(void *)to, wav->buffer, n, wav->bits);
        ds_float_env_leave(&callers);
        to += n * sample_bytes;
        *n_read += got;
        wav->position += got;
        if (got < wanted)
            break;
    }
    return DS_OK;
}
