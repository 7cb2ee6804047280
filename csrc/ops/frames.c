#include "ops/frames.h"

#include <string.h>

void ds_frames_copy(void *to, const void *from, size_t n_bytes)
{
    if (n_bytes != 0 && to != from) {
        memmove(to, from, n_bytes);
    }
}

void ds_frames_fill(void *to, size_t n_bytes, const void *pattern, size_t pattern_bytes)
{
    if (n_bytes == 0) {
        return;
    }
    char *bytes = to;
    memcpy(bytes, pattern, pattern_bytes);
    for (size_t done = pattern_bytes; done < n_bytes;) {
        const size_t n = done < n_bytes - done ? done : n_bytes - done;
        memcpy(bytes + done, bytes, n);
        done += n;
    }
}

bool ds_frames_encode(ds_dtype dtype, double value, void *element)
{
    if (dtype == DS_F32) {
        memcpy(element, &(float){(float)value}, sizeof(float));
        return true;
    }
    if (dtype == DS_F64) {
        memcpy(element, &value, sizeof value);
        return true;
    }
    const double limit = dtype == DS_I64 ? 9007199254740992.0 : dtype == DS_I16 ? 32767.0 : 1.0;
    if (!(value >= (dtype == DS_BOOL ? 0.0 : -limit) && value <= limit) ||
        (double)(int64_t)value != value) {
        return false;
    }
    if (dtype == DS_I64) {
        memcpy(element, &(int64_t){(int64_t)value}, sizeof(int64_t));
    } else if (dtype == DS_I16) {
        memcpy(element, &(int16_t){(int16_t)value}, sizeof(int16_t));
    } else {
        memcpy(element, &(uint8_t){value > 0.0 ? 1 : 0}, 1);
    }
    return true;
}

/* memcpy of a constant size is a move or two. */
#define GATHER(n_bytes)                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                           \
        memcpy((char *)to + (size_t)i * (n_bytes), (const char *)from + (size_t)i * step_bytes, \
               (n_bytes));                                                                      \
    }

void ds_frames_gather(void *to, const void *from, int64_t n, size_t frame_bytes, size_t step_bytes)
{
    if (n <= 0) {
        return;
    }
    if (frame_bytes == step_bytes) {
        ds_frames_copy(to, from, (size_t)n * frame_bytes);
    } else if (frame_bytes == 1) {
        GATHER(1)
    } else if (frame_bytes == 2) {
        GATHER(2)
    } else if (frame_bytes == 4) {
        GATHER(4)
    } else if (frame_bytes == 8) {
        GATHER(8)
    } else {
        GATHER(frame_bytes)
    }
}

void ds_frames_take(const ds_op *op, const ds_run *run, int64_t start, int64_t step)
{
    const size_t n_bytes = ds_signature_bytes(&op->in[0]);
    for (size_t r = 0; r < run->n_rows; r++) {
        const ds_target *out = &run->out[r];
        if (out->m0 < out->m1) {
            ds_frames_gather(out->data, ds_at(&run->in[r], start + out->m0 * step, n_bytes),
                             out->m1 - out->m0, n_bytes, (size_t)step * n_bytes);
        }
    }
}
