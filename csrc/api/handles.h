/* api/handles.h: which models and streams exist, and who is in them.
 *
 * Callers hold plain pointers, and may come with one that was closed. So every object hangs in one tree of
 * the process, and a call enters it there, by address, before anything of it is read. One lock guards the
 * tree and all the counts; it is held for look-ups only. */
#ifndef DS_API_HANDLES_H
#define DS_API_HANDLES_H
#include <stdbool.h>

#include "base/status.h"

typedef enum ds_handle_kind { DS_HANDLE_MODEL = 1, DS_HANDLE_STREAM = 2 } ds_handle_kind;

/* The head of an object. */
typedef struct ds_handle {
    ds_handle_kind kind;
    size_t n_users;             /* calls that are in it now */
    struct ds_handle *parent;   /* a stream's model; is entered with it */
    struct ds_handle *below[4]; /* in the tree */
} ds_handle;

/* Makes an object known. */
void ds_handle_add(ds_handle *handle);
/* Enters a model, beside others. Errors: DS_ARGUMENT (NULL), DS_CLOSED. */
ds_status ds_handle_enter_model(const void *model);
/* Enters streams (distinct), each alone, and their model: `model`, or with NULL that of the only one.
 * All or none. Errors: DS_ARGUMENT (NULL, given twice, of another model), DS_CLOSED, DS_BUSY. */
ds_status ds_handle_enter_streams(const void *model, const void *const *streams, size_t n);
ds_status ds_handle_enter_stream(const void *stream);
/* Leave what was entered, and return the status that they are given. */
ds_status ds_handle_leave_model(void *model, ds_status status);
ds_status ds_handle_leave_streams(const void *const *streams, size_t n, ds_status status);
ds_status ds_handle_leave_stream(const void *stream, ds_status status);
/* Takes a model out, which nobody may be in. Errors: DS_ARGUMENT (NULL), DS_CLOSED, DS_BUSY. */
ds_status ds_handle_close_model(const void *model);
/* Takes out what the caller alone can reach: a stream that it has entered, whose model it has still to
 * leave, or one of a closed model. */
void ds_handle_drop(ds_handle *handle);
/* Whether a call is in it. */
bool ds_handle_in_use(const ds_handle *handle);

#endif
