/* api/handles.h: which models, decoders and streams of them exist, and who is in them.
 *
 * Callers hold plain pointers, and may come with one that was closed. So every object hangs in one tree of
 * the process, and a call enters it there, by address, before anything of it is read. One lock guards the
 * tree and all the counts; it is held for look-ups only. */
#pragma once
#include <stdbool.h>

#include "base/status.h"

typedef enum ds_handle_kind {
    DS_HANDLE_MODEL,
    DS_HANDLE_STREAM, /* of a model */
    DS_HANDLE_DECODER,
    DS_HANDLE_DECODING /* a stream of a decoder */
} ds_handle_kind;

/* The head of an object. */
typedef struct ds_handle {
    ds_handle_kind kind;
    size_t n_users;             /* calls that are in it now */
    struct ds_handle *parent;   /* what a stream is of; is entered with it */
    struct ds_handle *below[4]; /* in the tree */
} ds_handle;

/* Makes an object known. */
void ds_handle_add(ds_handle *handle);
/* Enters a model or decoder, beside others. Errors: DS_ARGUMENT (NULL), DS_CLOSED. */
ds_status ds_handle_enter_parent(ds_handle_kind kind, const void *parent);
/* Enters streams (distinct) of a kind, each alone, and what they are of: `parent`, or with NULL that of the only one.
 * All or none. Errors: DS_ARGUMENT (NULL, given twice, of another parent), DS_CLOSED, DS_BUSY. */
ds_status ds_handle_enter_children(ds_handle_kind kind, const void *parent,
                                   const void *const *streams, size_t n);
/* Leave what was entered, and return the status that they are given. */
ds_status ds_handle_leave_parent(void *parent, ds_status status);
ds_status ds_handle_leave_children(const void *const *streams, size_t n, ds_status status);
/* Takes a model or decoder out, which nobody may be in. Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY. */
ds_status ds_handle_close_parent(ds_handle_kind kind, const void *parent);

static inline ds_status ds_handle_enter_model(const void *model)
{
    return ds_handle_enter_parent(DS_HANDLE_MODEL, model);
}

static inline ds_status ds_handle_enter_stream(const void *stream)
{
    return ds_handle_enter_children(DS_HANDLE_STREAM, NULL, &stream, 1);
}

static inline ds_status ds_handle_enter_decoding(const void *stream)
{
    return ds_handle_enter_children(DS_HANDLE_DECODING, NULL, &stream, 1);
}

static inline ds_status ds_handle_leave_stream(const void *stream, ds_status status)
{
    return ds_handle_leave_children(&stream, 1, status);
}

/* Takes out what the caller alone can reach: a stream that it has entered, whose model it has still to
 * leave, or one of a closed model. */
void ds_handle_drop(ds_handle *handle);
/* Whether a call is in it. */
bool ds_handle_in_use(const ds_handle *handle);
