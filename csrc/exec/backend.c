/* exec/backend.c: lists the kernels' variants, without and with OpenBLAS, and picks one. */
#include "exec/backend.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* More than were ever compiled in. */
enum { MAX_VARIANTS = 16 };

size_t ds_backends(void)
{
    const size_t n = ds_kernels_list(NULL, 0);
    return ds_kernels_blas(DS_ISA_REF) ? 2 * n : n;
}

const ds_kernels *ds_backend(size_t index)
{
    const ds_kernels *variants[MAX_VARIANTS];
    const size_t n = ds_kernels_list(variants, MAX_VARIANTS);
    return index < n ? variants[index] : ds_kernels_blas(variants[index - n]->isa);
}

bool ds_backend_usable(const ds_kernels *kernels)
{
    return kernels->isa <= ds_cpu_best();
}

bool ds_backend_bitwise(const ds_kernels *kernels)
{
    return strchr(kernels->name, '+') == NULL;
}

static ds_status find(const ds_kernels **kernels, const char *name)
{
    for (size_t i = 0; i < ds_backends(); i++) {
        const ds_kernels *backend = ds_backend(i);
        if (strcmp(backend->name, name) == 0) {
            DS_CHECK(ds_backend_usable(backend), DS_MODE, "backend \"%s\": this machine has no %s",
                     name, ds_isa_name(backend->isa));
            *kernels = backend;
            return DS_OK;
        }
    }
    return ds_fail(DS_ARGUMENT, "backend \"%s\" is not built in", DS_SHOWN(name));
}

ds_status ds_backend_choose(const ds_kernels **kernels, const char *name, bool blas)
{
    ds_blas_set_threads(1);
    if (name)
        return find(kernels, name);
    ds_isa isa;
    if (ds_cpu_choose(&isa, getenv("DREAMSTREAM_ISA")) != DS_OK)
        return ds_fail(DS_ARGUMENT, "DREAMSTREAM_ISA: %s", ds_last_error());
    const char *without = getenv("DREAMSTREAM_BLAS");
    const ds_kernels *with_blas = ds_kernels_blas(isa);
    blas = blas && with_blas && !(without && strcmp(without, "none") == 0);
    *kernels = blas ? with_blas : ds_kernels_for(isa);
    return DS_OK;
}
