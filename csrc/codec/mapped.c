/* Shared bytes: mapped, read or copied. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* madvise() */
#define _FILE_OFFSET_BITS 64

#include "codec/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"

#define PATH_SHOWN 256 /* the most bytes that messages have of a path: they also say why */

struct ds_mapped {
    ds_allocator allocator;
    atomic_size_t n_users;
    void *bytes; /* NULL if there are none */
    size_t n_bytes;
    bool is_mapping;
};

/* Fails with what the system says. */
static ds_status fail(int error, const char *path, const char *what)
{
    const ds_status status = error == ENOMEM                      ? DS_NO_MEMORY
                             : error == EMFILE || error == ENFILE ? DS_LIMIT
                                                                  : DS_FORMAT;
    char reason[128];
    if (strerror_r(error, reason, sizeof reason) != 0)
        reason[0] = '\0';
    return ds_fail(status, "%s: can't %s: %s (error %d)", path, what, reason, error);
}

static ds_status make(ds_mapped **mapped, const ds_allocator *allocator)
{
    DS_TRY(ds_allocate_zeroed(allocator, (void **)mapped, sizeof(ds_mapped)));
    (*mapped)->allocator = allocator != NULL ? *allocator : *ds_default_allocator();
    atomic_init(&(*mapped)->n_users, 1);
    return DS_OK;
}

/* ---- files ---------------------------------------------------------------------------------- */
/* Fills `*n_bytes` with the size of what must be a regular file. */
static ds_status measure(size_t *n_bytes, int file, const char *path)
{
    struct stat about;
    if (fstat(file, &about) != 0)
        return fail(errno, path, "ask for its size");
    DS_CHECK(S_ISREG(about.st_mode), DS_FORMAT, "%s: expected a regular file, got %s", path,
             S_ISDIR(about.st_mode) ? "a folder" : "something else");
    DS_CHECK(about.st_size >= 0 && (uintmax_t)about.st_size <= PTRDIFF_MAX, DS_NO_MEMORY,
             "%s: expected a file that fits into memory, got %lld bytes", path,
             (long long)about.st_size);
    *n_bytes = (size_t)about.st_size;
    return DS_OK;
}

static ds_status map_file(ds_mapped *mapped, int file, size_t n_bytes, const char *path)
{
    if (n_bytes == 0) /* nothing can't be mapped */
        return DS_OK;
    void *bytes = mmap(NULL, n_bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
        return fail(errno, path, "map it");
    mapped->bytes = bytes;
    mapped->n_bytes = n_bytes;
    mapped->is_mapping = true;
    return DS_OK;
}

static ds_status read_file(ds_mapped *mapped, int file, size_t n_bytes, const char *path)
{
    DS_TRY(ds_allocate(&mapped->allocator, &mapped->bytes, n_bytes));
    mapped->n_bytes = n_bytes;
    for (size_t done = 0; done < n_bytes;) {
        const ssize_t n = read(file, (char *)mapped->bytes + done, n_bytes - done);
        if (n < 0 && errno != EINTR)
            return fail(errno, path, "read it");
        DS_CHECK(n != 0, DS_FORMAT, "%s: expected %zu bytes, got %zu: it was cut meanwhile", path,
                 n_bytes, done);
        done += n > 0 ? (size_t)n : 0;
    }
    return DS_OK;
}

static void close_file(const int *file)
{
    (void)close(*file);
}

/* Opens `path` and lets `take` take its bytes over. */
static ds_status from_file(ds_mapped **mapped, const ds_allocator *allocator, const char *path,
                           ds_status (*take)(ds_mapped *, int, size_t, const char *))
{
    ds_mapped *made = NULL;
    size_t n_bytes = 0;
    int opened;
    char shown[PATH_SHOWN];
    const char *name = ds_utf8_show(shown, sizeof shown, path, strlen(path));
    do { /* O_NONBLOCK: a pipe must not make us wait; files don't mind */
        opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    } while (opened < 0 && errno == EINTR);
    if (opened < 0)
        return fail(errno, name, "open it");
    DS_SCOPED(close_file) const int file = opened; /* a mapping stays */
    DS_TRY(measure(&n_bytes, file, name));
    DS_TRY(make(&made, allocator));
    DS_TRY_ELSE(take(made, file, n_bytes, name), ds_mapped_release(made));
    *mapped = made;
    return DS_OK;
}

ds_status ds_mapped_open(ds_mapped **mapped, const ds_allocator *allocator, const char *path)
{
    return from_file(mapped, allocator, path, map_file);
}

ds_status ds_mapped_read(ds_mapped **mapped, const ds_allocator *allocator, const char *path)
{
    return from_file(mapped, allocator, path, read_file);
}

ds_status ds_mapped_copy(ds_mapped **mapped, const ds_allocator *allocator, const void *bytes,
                         size_t n_bytes)
{
    ds_mapped *made = NULL;
    DS_TRY(make(&made, allocator));
    DS_TRY_ELSE(ds_allocate(&made->allocator, &made->bytes, n_bytes), ds_mapped_release(made));
    if (n_bytes > 0)
        memcpy(made->bytes, bytes, n_bytes);
    made->n_bytes = n_bytes;
    *mapped = made;
    return DS_OK;
}

/* ---- users ---------------------------------------------------------------------------------- */
ds_mapped *ds_mapped_share(ds_mapped *mapped)
{
    (void)atomic_fetch_add_explicit(&mapped->n_users, 1, memory_order_relaxed);
    return mapped;
}

void ds_mapped_release(ds_mapped *mapped)
{
    if (mapped == NULL ||
        atomic_fetch_sub_explicit(&mapped->n_users, 1, memory_order_acq_rel) > 1) {
        return;
    }
    if (mapped->is_mapping)
        (void)munmap(mapped->bytes, mapped->n_bytes);
    else
        ds_release(&mapped->allocator, mapped->bytes, mapped->n_bytes);
    const ds_allocator hooks = mapped->allocator;
    ds_release(&hooks, mapped, sizeof *mapped);
}

const void *ds_mapped_bytes(const ds_mapped *mapped)
{
    static const _Alignas(DS_ALIGNMENT) unsigned char none[1];
    return mapped->bytes != NULL ? mapped->bytes : none;
}

void ds_mapped_forget(const ds_mapped *mapped)
{
#if defined(MADV_DONTNEED)
    /* memory of our own would be lost by this; a mapping that nobody writes to is read anew */
    if (mapped->is_mapping)
        (void)madvise(mapped->bytes, mapped->n_bytes, MADV_DONTNEED);
#else
    (void)mapped;
#endif
}

size_t ds_mapped_size(const ds_mapped *mapped)
{
    return mapped->n_bytes;
}

bool ds_mapped_is_mapping(const ds_mapped *mapped)
{
    return mapped->is_mapping;
}
