/* batch/layout.h: frames as callers lay them out, to and from [frames][features...].
 *
 * A caller's array has strides: bytes from one element to the next along frames, then along each axis of a
 * frame's features; any sign, zero included, at any address. Where the elements that lie side by side are not
 * the same on both sides (a caller's [features][frames]), they are moved tile by tile: every line of memory
 * that is touched is used as a whole. */
#pragma once
#include "batch/value.h"

/* What callers' elements are: a ds_dtype, or one that there is not on edges. */
typedef enum ds_element {
    DS_ELEMENT_F32 = DS_F32,
    DS_ELEMENT_F64 = DS_F64,
    DS_ELEMENT_I64 = DS_I64,
    DS_ELEMENT_BOOL = DS_BOOL, /* a byte: whether it is not 0 */
    DS_ELEMENT_I16 = DS_I16,
    DS_ELEMENT_I8,
    DS_ELEMENT_I32,
    DS_ELEMENT_U8,
    DS_ELEMENT_U16,
    DS_ELEMENT_U32,
    DS_ELEMENT_U64,
} ds_element;

/* Whether an input takes such elements: DS_F32 also float64 and, as fractions of 32768 where a frame is one
 * sample, int16; integers any integers; bools bools. */
bool ds_layout_fits(const ds_signature *signature, ds_element element);
/* Fills `to`, contiguous, with n frames, converted. strides NULL: `from` is contiguous, too. */
void ds_layout_read(void *to, const void *from, const ptrdiff_t *strides, ds_element element,
                    const ds_signature *signature, int64_t n);
/* Copies n contiguous frames. strides NULL: `to` is contiguous, too. */
void ds_layout_write(void *to, const ptrdiff_t *strides, const void *from,
                     const ds_signature *signature, int64_t n);
