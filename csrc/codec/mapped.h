/* Bytes that several users share, and never change: a file that is mapped, a file that was read, or
 * a copy of memory. The last user to leave releases them, so weights can be used where they lie.
 * Any thread may call any of these.
 *
 * A mapping takes no memory of its own: processes that map one file share its pages. What the file
 * holds must stay as it is meanwhile: replace it by renaming a new one over it. Where a file is cut
 * short under a mapping, the system ends the process that reads beyond its end; who can't rule that
 * out reads the file (ds_mapped_read). */
#pragma once
#include "base/alloc.h"

typedef struct ds_mapped ds_mapped;
/* Fills `*mapped` (returns owned) with a mapping of the file `path`, a regular file of any size, 0
 * included. `allocator` is copied, NULL is the C library's. Errors: DS_FORMAT if it can't be
 * opened, read or mapped, or is not a regular file; DS_LIMIT if too many files are open;
 * DS_NO_MEMORY. Messages name the path and what the system says. */
ds_status ds_mapped_open(ds_mapped **mapped, const ds_allocator *allocator, const char *path);
/* The same, with the file's bytes read into memory of `allocator`. */
ds_status ds_mapped_read(ds_mapped **mapped, const ds_allocator *allocator, const char *path);
/* The same with a copy of `n_bytes` at `bytes`. Errors: DS_NO_MEMORY. */
ds_status ds_mapped_copy(ds_mapped **mapped, const ds_allocator *allocator, const void *bytes,
                         size_t n_bytes);
/* Adds a user; returns `mapped`, which the new user releases too. */
ds_mapped *ds_mapped_share(ds_mapped *mapped);
/* One user leaves; the last one takes the bytes along. NULL is allowed. */
void ds_mapped_release(ds_mapped *mapped);
/* Returns view of the bytes, at a multiple of DS_ALIGNMENT; not NULL, even if there are none. */
const void *ds_mapped_bytes(const ds_mapped *mapped);
size_t ds_mapped_size(const ds_mapped *mapped);
/* Whether the bytes are a file's, mapped, and so take no memory of this process's own. */
bool ds_mapped_is_mapping(const ds_mapped *mapped);
/* Says that the bytes won't be read soon: of a mapping, the pages that were read no longer count as
 * this process's memory, and are mapped anew when somebody reads them. Others may read meanwhile. */
void ds_mapped_forget(const ds_mapped *mapped);
