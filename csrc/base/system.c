/* base/system.c: Linux's own, and what stands for it on other systems. */
#if defined(__linux__)
#define _GNU_SOURCE /* madvise(), syscall() */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#endif

#include "base/system.h"

#include <stdlib.h> /* which says whose library it is */
#if defined(__GLIBC__)
#include <malloc.h>
#endif

void ds_system_large_pages(void *memory, size_t n_bytes)
{
#if defined(__linux__)
    (void)madvise(memory, n_bytes, MADV_HUGEPAGE);
#else
    (void)memory;
    (void)n_bytes;
#endif
}

void ds_system_give_back(void)
{
#if defined(__GLIBC__)
    (void)malloc_trim(0);
#endif
}

/* Linux switches the tiles' 8 KiB of state on for processes that ask; elsewhere, never. */
bool ds_system_allow_tiles(void)
{
#if defined(__linux__) && defined(__x86_64__) && defined(SYS_arch_prctl)
    const long request_permission = 0x1023; /* ARCH_REQ_XCOMP_PERM */
    const long tile_data = 18;              /* XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
    return false;
#endif
}

ds_system_arm ds_system_read_arm(void)
{
#if defined(__linux__) && defined(__aarch64__)
    return (ds_system_arm){getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
#elif defined(__aarch64__)
    return (ds_system_arm){
        1ul << 1, 0}; /* vectors: every processor of this kind that runs programs has them */
#else
    return (ds_system_arm){0, 0};
#endif
}
