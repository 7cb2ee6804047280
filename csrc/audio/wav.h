/* audio/wav.h: a reader of WAV files that trusts none of their bytes and reads them front to back.
 *
 *     ds_wav wav;
 *     DS_TRY(ds_wav_open(&wav, &source));            // reads up to the first sample
 *     do {
 *         DS_TRY(ds_wav_read(&wav, DS_F32, frames, 4096, &n));     // frames[n][wav.channels]
 *     } while (n > 0);
 *
 * Read: RIFF, and RF64 or BW64 with its 64-bit sizes; integers of 8 (unsigned), 16, 24 and 32
 * bits and floating point of 32 and 64 bits, as such or as WAVE_FORMAT_EXTENSIBLE; 1 to 65535
 * channels; chunks in any order before the samples, unknown ones skipped, odd ones padded. What
 * follows the samples is not looked at. A data chunk of 0xFFFFFFFF bytes (or, where the RIFF
 * chunk ends with it, of none) is that of a recorder that cannot go back: it lasts until the
 * source ends. Bytes at the end that make no whole frame are dropped.
 *
 * As float an integer of b bits is divided by 2^(b - 1), so that full scale is -1 to 1.
 *
 * Whatever else is found is DS_FORMAT, with the offset, what was expected and what came; nothing is
 * allocated, and a source is asked for 64 KiB at most at a time.
 *
 * Source: Microsoft's and IBM's RIFF, WAVEFORMATEX and WAVEFORMATEXTENSIBLE; EBU Tech 3306
 * (RF64). */
#ifndef DS_AUDIO_WAV_H
#define DS_AUDIO_WAV_H
#include <stdbool.h>

#include "audio/source.h"

enum { DS_WAV_BUFFER_BYTES = 1 << 16 /* above any frame: 65535 bytes */ };

typedef struct ds_wav {
    /* to be read */
    int64_t sample_rate, channels;
    int64_t frames; /* of the whole recording; -1: it lasts until the source ends */
    int bits;       /* of one sample */
    bool floating;  /* else integers */
    /* private */
    ds_source source;
    int64_t offset; /* bytes taken from the source */
    int64_t frame_bytes;
    int64_t position; /* frames read */
    unsigned char buffer[DS_WAV_BUFFER_BYTES];
} ds_wav;

/* Reads the header. Borrows the source, as later calls do. Thread: one at a time per reader. */
ds_status ds_wav_open(ds_wav *wav, const ds_source *source);

/*
 * Fills the next frames, at most n_frames of `channels` samples each, as DS_F32, or as DS_I16
 * where that is exact (DS_DTYPE elsewhere: integers of more than 16 bits, floating point).
 * *n_read < n_frames at the end only, and before a fault: where a source ends too early, what
 * came whole is given, and the next call fails.
 */
ds_status ds_wav_read(ds_wav *wav, ds_dtype dtype, void *samples, int64_t n_frames,
                      int64_t *n_read);

#endif
