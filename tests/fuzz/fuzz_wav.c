/*
 * WAV files: what is read is the same in one piece and in any pieces, agrees with what the header says,
 * and is the same as float and as int16 where both can be had. The first two bytes choose the pieces.
 */
#include "audio/wav.h"
#include "fuzz.h"

static ds_wav wav;
static ds_memory_source memory;

static ds_status open_bytes(const uint8_t *data, size_t n_bytes)
{
    const ds_source source = ds_source_memory(&memory, data, n_bytes);
    return ds_wav_open(&wav, &source);
}

/* Reads in pieces of 1 to `most` frames until nothing comes; what came is in `samples`. */
static ds_status read_pieces(ds_dtype dtype, char *samples, size_t sample_bytes, int64_t room, int64_t most,
                             uint32_t seed, int64_t *n_frames)
{
    *n_frames = 0;
    for (;;) {
        int64_t piece = 1 + (int64_t)((seed = seed * 1664525u + 1013904223u) >> 8) % most, n = -1;
        piece = piece < room - *n_frames ? piece : room - *n_frames;
        const ds_status status =
            ds_wav_read(&wav, dtype, samples + (size_t)(*n_frames * wav.channels) * sample_bytes, piece, &n);
        FUZZ_CHECK(n >= 0 && n <= piece);
        *n_frames += n;
        if (status != DS_OK || n < piece || piece == 0) {
            return status;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes < 2) {
        return 0;
    }
    const uint32_t seed = data[0];
    const int64_t most = 1 + data[1];
    data += 2;
    n_bytes -= 2;
    ds_status status = open_bytes(data, n_bytes);
    if (status != DS_OK) {
        fuzz_check_refusal(status);
        return 0;
    }
    FUZZ_CHECK(wav.channels >= 1 && wav.channels <= 65535 && wav.sample_rate > 0 && wav.frames >= -1);
    FUZZ_CHECK(wav.bits == 8 || wav.bits == 16 || wav.bits == 24 || wav.bits == 32 || wav.bits == 64);
    const int64_t frame_bytes = wav.channels * (wav.bits / 8), room = (int64_t)n_bytes / frame_bytes + 2;
    const size_t n_room = (size_t)(room * wav.channels);
    float *whole = malloc(n_room * sizeof *whole), *parts = malloc(n_room * sizeof *parts);
    int16_t *exact = malloc(n_room * sizeof *exact);
    FUZZ_CHECK(whole != NULL && parts != NULL && exact != NULL);
    int64_t n = 0, n_parts = 0, n_exact = 0;
    status = ds_wav_read(&wav, DS_F32, whole, room, &n);
    if (status == DS_OK && wav.frames >= 0 && n < wav.frames) { /* cut short: the next call says so */
        int64_t more = 0;
        status = ds_wav_read(&wav, DS_F32, whole + n * wav.channels, 1, &more);
        FUZZ_CHECK(status == DS_FORMAT && more == 0);
    }
    FUZZ_CHECK(n >= 0 && n < room && (wav.frames < 0 || n <= wav.frames));
    FUZZ_CHECK(status == DS_OK ? wav.frames < 0 || n == wav.frames : wav.frames > n);
    if (status != DS_OK) {
        fuzz_check_refusal(status);
    }
    for (int64_t i = 0; i < n * wav.channels && !wav.floating; i++) {
        FUZZ_CHECK(whole[i] >= -1.0f && whole[i] <= 1.0f);
    }
    FUZZ_CHECK(open_bytes(data, n_bytes) == DS_OK);
    const ds_status again = read_pieces(DS_F32, (char *)parts, sizeof *parts, room, most, seed, &n_parts);
    FUZZ_CHECK(n_parts == n && (again == DS_OK || again == status));
    FUZZ_CHECK(memcmp(parts, whole, (size_t)(n * wav.channels) * sizeof *whole) == 0);
    if (!wav.floating && wav.bits <= 16) {
        FUZZ_CHECK(open_bytes(data, n_bytes) == DS_OK);
        (void)read_pieces(DS_I16, (char *)exact, sizeof *exact, room, most, seed + 1, &n_exact);
        FUZZ_CHECK(n_exact == n);
        for (int64_t i = 0; i < n * wav.channels; i++) {
            FUZZ_CHECK((float)exact[i] / 32768.0f == whole[i]);
        }
    }
    free(whole);
    free(parts);
    free(exact);
    return 0;
}
