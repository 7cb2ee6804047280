/* audio/samples.h: samples as recordings hold them (little-endian), as floats and as int16. */
#ifndef DS_AUDIO_SAMPLES_H
#define DS_AUDIO_SAMPLES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Integers of 8 (offset binary), 16, 24 or 32 bits divided by 2^(bits - 1), rounded once;
 * floating-point samples of 32 or 64 bits converted. */
void ds_samples_to_float(float *to, const unsigned char *from, size_t n, int bits, bool floating);
/* Integers of 8 bits, in the upper byte, or 16. */
void ds_samples_to_int16(int16_t *to, const unsigned char *from, size_t n, int bits);

#endif
