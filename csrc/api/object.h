/* api/object.h: what stands behind ds_model and ds_stream. */
#pragma once
#include "api/handles.h"
#include "base/counted.h"
#include "base/lock.h"
#include "exec/engine.h"
#include "model/model.h"

struct ds_model {
    ds_handle handle;
    ds_counted counted; /* its allocator is that of everything below */
    ds_allocator allocator;
    size_t mapped_bytes;
    ds_interface *interface;
    ds_engine *engine;
    size_t max_streams;
    pthread_mutex_t lock;       /* guards what follows */
    ds_stream *oldest, *newest; /* all open streams, the longest idle first */
};

/* The latest frames of one output. */
typedef struct ds_kept_output {
    void *data; /* room for n_bytes */
    size_t n_bytes;
} ds_kept_output;

struct ds_stream {
    ds_handle handle;
    ds_model *model;
    ds_slot *slot;
    ds_stream *older, *newer;
    bool begun, ended, refused;
    double last_used;         /* its last step, or when it was opened; the model's lock guards it */
    ds_kept_output outputs[]; /* [n_outputs] */
};

static inline const ds_plan *ds_model_plan(const ds_model *model)
{
    return model->engine->plan;
}

/* Notes that streams of the model, which are in its list and entered, were used just now. */
void ds_model_touch(ds_model *model, ds_stream *const *streams, size_t n);
/* Releases a stream that is in no table any more. */
void ds_stream_release(ds_stream *stream);
/* What the structs that begin with their size had in version 1 of the binary interface, on machines with
 * pointers of 64 bits. Callers have at least that, for ever: these numbers don't change, and fields that
 * are added begin where they end (not in padding: what old callers have there is anything). */
enum {
    DS_BACKEND_INFO_1 = 24,
    DS_MODEL_OPTIONS_1 = 40,
    DS_MODEL_INFO_1 = 136,
    DS_PORT_INFO_1 = 64,
    DS_MEMORY_INFO_1 = 48,
    DS_STREAM_INFO_1 = 40,
    DS_DECODER_OPTIONS_1 = 248,
    DS_HYPOTHESIS_1 = 72
};

/* Whether a struct of the caller's, which begins with its size, has at least that of version 1.
 * Errors: DS_ARGUMENT. */
ds_status ds_check_struct(const void *caller, size_t size_1, const char *name);
/* Fills options, of which this library knows `n_known` bytes, from a caller's struct. Errors: DS_ARGUMENT. */
ds_status ds_take_struct(void *taken, size_t n_known, const void *caller, size_t size_1,
                         const char *name);
/* Whether a caller's allocator, if there is one, has its functions. Errors: DS_ARGUMENT. */
ds_status ds_check_allocator(const ds_allocator *allocator, const char *name);
/* Copies a struct that was filled, but for its size, to a caller that may have less of it, or more. */
void ds_give_struct(void *caller, const void *filled, size_t n_bytes);
