/* The tree: two bits of an address's hash per level say where to go on, and what hangs below a place is
 * what comes that way. Its links lie in the objects themselves, so that it takes no memory of its own. */
#include "api/handles.h"

#include <string.h>

#include "base/lock.h"

static struct {
    pthread_mutex_t lock;
    ds_handle *top[4];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The place where the object at an address hangs, or would. No two addresses have one hash (the factor is
 * odd), so 32 levels tell any two apart. */
static ds_handle **place_of(const void *object)
{
    uint64_t hash = (uint64_t)(uintptr_t)object * UINT64_C(0x9E3779B97F4A7C15);
    ds_handle **place = &known.top[hash >> 62];
    for (; *place && (const void *)*place != object; hash <<= 2)
        place = &(*place)->below[hash >> 60 & 3];
    return place;
}

static ds_handle *find(const void *object, ds_handle_kind kind)
{
    ds_handle *found = *place_of(object);
    return found && found->kind == kind ? found : NULL;
}

void ds_handle_add(ds_handle *handle)
{
    DS_LOCKED(&known.lock);
    *place_of(handle) = handle;
}

/* Whatever hangs below a place may hang there itself: the first at the end of a branch does. */
static void take_out(const ds_handle *handle)
{
    ds_handle **place = place_of(handle), **end = place;
    for (int i = 0; i < 4;)
        if ((*end)->below[i]) {
            end = &(*end)->below[i];
            i = 0;
        } else {
            i++;
        }
    ds_handle *last = *end;
    *end = NULL;
    if (last != handle) {
        memcpy(last->below, handle->below, sizeof last->below);
        *place = last;
    }
}

static const char *const names[] = {"model", "stream", "decoder", "stream"};

static ds_status find_parent(ds_handle **found, ds_handle_kind kind, const void *parent)
{
    DS_CHECK(parent, DS_ARGUMENT, "the %s is NULL", names[kind]);
    *found = find(parent, kind);
    DS_CHECK(*found, DS_CLOSED, "the %s was closed, or never opened", names[kind]);
    return DS_OK;
}

ds_status ds_handle_enter_parent(ds_handle_kind kind, const void *parent)
{
    ds_handle *found;
    DS_LOCKED(&known.lock);
    DS_TRY(find_parent(&found, kind, parent));
    found->n_users++;
    return DS_OK;
}

/* Enters stream i; on failure nothing of it is entered. */
static ds_status enter_stream(ds_handle_kind kind, const void *parent, const void *const *streams,
                              size_t i)
{
    const ds_handle_kind above = kind == DS_HANDLE_STREAM ? DS_HANDLE_MODEL : DS_HANDLE_DECODER;
    DS_CHECK(streams[i], DS_ARGUMENT, "stream %zu is NULL", i);
    ds_handle *stream = find(streams[i], kind);
    DS_CHECK(stream && find(stream->parent, above), DS_CLOSED,
             "stream %zu was closed, or never opened", i);
    DS_CHECK(!parent || stream->parent == parent, DS_ARGUMENT, "stream %zu is of another %s", i,
             names[above]);
    for (size_t k = 0; stream->n_users > 0 && k < i; k++)
        DS_CHECK(streams[k] != streams[i], DS_ARGUMENT, "streams %zu and %zu are the same", k, i);
    DS_CHECK(stream->n_users == 0, DS_BUSY, "another thread is using stream %zu", i);
    stream->n_users = 1;
    stream->parent->n_users++;
    return DS_OK;
}

static void leave_streams(const void *const *streams, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ds_handle *const handle = (ds_handle *)(uintptr_t)streams[i];
        handle->n_users = 0;
        handle->parent->n_users--;
    }
}

ds_status ds_handle_enter_children(ds_handle_kind kind, const void *parent,
                                   const void *const *streams, size_t n)
{
    DS_LOCKED(&known.lock);
    for (size_t i = 0; i < n; i++)
        DS_TRY_ELSE(enter_stream(kind, parent, streams, i), leave_streams(streams, i));
    return DS_OK;
}

ds_status ds_handle_leave_parent(void *parent, ds_status status)
{
    DS_LOCKED(&known.lock);
    ((ds_handle *)parent)->n_users--;
    return status;
}

ds_status ds_handle_leave_children(const void *const *streams, size_t n, ds_status status)
{
    DS_LOCKED(&known.lock);
    leave_streams(streams, n);
    return status;
}

ds_status ds_handle_close_parent(ds_handle_kind kind, const void *parent)
{
    ds_handle *found;
    DS_LOCKED(&known.lock);
    DS_TRY(find_parent(&found, kind, parent));
    DS_CHECK(found->n_users == 0, DS_BUSY, "a call with the %s is under way", names[kind]);
    take_out(found);
    return DS_OK;
}

void ds_handle_drop(ds_handle *handle)
{
    DS_LOCKED(&known.lock);
    take_out(handle);
}

bool ds_handle_in_use(const ds_handle *handle)
{
    DS_LOCKED(&known.lock);
    return handle->n_users > 0;
}
