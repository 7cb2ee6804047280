/* A set of addresses by open addressing, at most half full. It has its memory from the allocator that was
 * set when it was made, and goes when the last object does. */
#include "api/handles.h"

#include <pthread.h>
#include <stdint.h>

#include "base/alloc.h"

static struct {
    pthread_mutex_t lock;
    ds_allocator allocator;
    ds_handle **cells; /* [n_cells], NULL where free; n_cells is a power of two */
    size_t n_cells, n_used;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The cell where an address lies, or would. */
static size_t cell_of(ds_handle *const *cells, size_t n_cells, const void *object)
{
    size_t at = (size_t)(((uint64_t)(uintptr_t)object * 0x9E3779B97F4A7C15u) >> 20);
    for (at &= n_cells - 1; cells[at] && (const void *)cells[at] != object;)
        at = (at + 1) & (n_cells - 1);
    return at;
}

static ds_handle *find(const void *object, ds_handle_kind kind)
{
    if (!table.cells)
        return NULL;
    ds_handle *found = table.cells[cell_of(table.cells, table.n_cells, object)];
    return found && found->kind == kind ? found : NULL;
}

static ds_status grow(void)
{
    if (table.cells && 2 * (table.n_used + 1) <= table.n_cells)
        return DS_OK;
    if (!table.cells)
        table.allocator = ds_allocator_current();
    const size_t n_cells = table.cells ? 2 * table.n_cells : 64;
    ds_handle **cells = NULL;
    DS_TRY(ds_allocate_zeroed(&table.allocator, (void **)&cells, n_cells * sizeof(ds_handle *)));
    for (size_t i = 0; i < table.n_cells; i++)
        if (table.cells[i])
            cells[cell_of(cells, n_cells, table.cells[i])] = table.cells[i];
    ds_release(&table.allocator, table.cells, table.n_cells * sizeof(ds_handle *));
    table.cells = cells;
    table.n_cells = n_cells;
    return DS_OK;
}

ds_status ds_handle_add(ds_handle *handle)
{
    pthread_mutex_lock(&table.lock);
    const ds_status status = grow();
    if (status == DS_OK) {
        table.cells[cell_of(table.cells, table.n_cells, handle)] = handle;
        table.n_used++;
    }
    pthread_mutex_unlock(&table.lock);
    return status;
}

/* Frees a cell; those that follow it in its run move up. */
static void take_out(const ds_handle *handle)
{
    size_t free = cell_of(table.cells, table.n_cells, handle);
    table.cells[free] = NULL;
    for (size_t at = (free + 1) & (table.n_cells - 1); table.cells[at];
         at = (at + 1) & (table.n_cells - 1)) {
        ds_handle *moved = table.cells[at];
        table.cells[at] = NULL;
        table.cells[cell_of(table.cells, table.n_cells, moved)] = moved;
    }
    if (--table.n_used == 0) {
        ds_release(&table.allocator, table.cells, table.n_cells * sizeof(ds_handle *));
        table.cells = NULL;
        table.n_cells = 0;
    }
}

static ds_status closed(const char *what)
{
    return ds_fail(DS_CLOSED, "the %s was closed, or never opened", what);
}

ds_status ds_handle_enter_model(const void *model)
{
    DS_CHECK(model, DS_ARGUMENT, "the model is NULL");
    pthread_mutex_lock(&table.lock);
    ds_handle *found = find(model, DS_HANDLE_MODEL);
    if (found)
        found->n_users++;
    pthread_mutex_unlock(&table.lock);
    return found ? DS_OK : closed("model");
}

/* Enters stream i; on failure nothing of it is entered. */
static ds_status enter_stream(const void *model, const void *const *streams, size_t i)
{
    DS_CHECK(streams[i], DS_ARGUMENT, "stream %zu is NULL", i);
    ds_handle *stream = find(streams[i], DS_HANDLE_STREAM);
    if (!stream || !find(stream->parent, DS_HANDLE_MODEL))
        return ds_fail(DS_CLOSED, "stream %zu was closed, or never opened", i);
    DS_CHECK(!model || stream->parent == model, DS_ARGUMENT, "stream %zu is of another model", i);
    for (size_t k = 0; stream->n_users > 0 && k < i; k++)
        DS_CHECK(streams[k] != streams[i], DS_ARGUMENT, "streams %zu and %zu are the same", k, i);
    DS_CHECK(stream->n_users == 0, DS_BUSY, "another thread is using stream %zu", i);
    stream->n_users = 1;
    stream->parent->n_users++;
    return DS_OK;
}

static void leave_stream(const void *stream)
{
    ds_handle *found = find(stream, DS_HANDLE_STREAM);
    found->n_users = 0;
    found->parent->n_users--;
}

ds_status ds_handle_enter_streams(const void *model, const void *const *streams, size_t n)
{
    ds_status status = DS_OK;
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; status == DS_OK && i < n; i++) {
        status = enter_stream(model, streams, i);
        for (size_t k = 0; status != DS_OK && k < i; k++)
            leave_stream(streams[k]);
    }
    pthread_mutex_unlock(&table.lock);
    return status;
}

void ds_handle_leave_model(ds_handle *model)
{
    pthread_mutex_lock(&table.lock);
    model->n_users--;
    pthread_mutex_unlock(&table.lock);
}

void ds_handle_leave_streams(const void *const *streams, size_t n)
{
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; i < n; i++)
        leave_stream(streams[i]);
    pthread_mutex_unlock(&table.lock);
}

ds_status ds_handle_close_model(const void *model)
{
    DS_CHECK(model, DS_ARGUMENT, "the model is NULL");
    pthread_mutex_lock(&table.lock);
    const ds_handle *found = find(model, DS_HANDLE_MODEL);
    const bool busy = found && found->n_users > 0;
    if (found && !busy)
        take_out(found);
    pthread_mutex_unlock(&table.lock);
    DS_CHECK(!busy, DS_BUSY, "a call with the model is under way");
    return found ? DS_OK : closed("model");
}

void ds_handle_drop(ds_handle *handle)
{
    pthread_mutex_lock(&table.lock);
    take_out(handle);
    pthread_mutex_unlock(&table.lock);
}

bool ds_handle_in_use(const ds_handle *handle)
{
    pthread_mutex_lock(&table.lock);
    const bool used = handle->n_users > 0;
    pthread_mutex_unlock(&table.lock);
    return used;
}
