/* exec/backend.h: which kernels run a model.
 *
 * A backend is a table of kernels (kernels/kernels.h): one per variant that was compiled in, and each
 * again with products by OpenBLAS where that is built in. */
#pragma once
#include "base/status.h"
#include "kernels/kernels.h"

size_t ds_backends(void);
/* Backend `index`, below the number, the plainest first, those with OpenBLAS last. */
const ds_kernels *ds_backend(size_t index);
/* Whether this machine can run it. */
bool ds_backend_usable(const ds_kernels *kernels);
/* Whether a row's products depend on nothing but the row. */
bool ds_backend_bitwise(const ds_kernels *kernels);
/* Fills the backend of that name, whatever the environment says; with NULL the best one up to
 * DREAMSTREAM_ISA, with OpenBLAS if `blas` and it is there and DREAMSTREAM_BLAS is not "none". Holds
 * OpenBLAS to one thread. Errors: DS_ARGUMENT for an unknown name, there or in the environment, DS_MODE
 * where this machine can't run it. */
ds_status ds_backend_choose(const ds_kernels **kernels, const char *name, bool blas);
