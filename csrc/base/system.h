/* What each operating system does its own way. All of it stands here: elsewhere POSIX is enough. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Asks for large pages under memory that begins at one's boundary. It may be declined. */
void ds_system_large_pages(void *memory, size_t n_bytes);
/* Gives back to the system what the C library's allocator holds of freed memory, where that can be asked for. */
void ds_system_give_back(void);
/* Asks, for this process, that the state of Intel's tile units be kept when tasks are switched; returns whether it is. */
bool ds_system_allow_tiles(void);
/* What a 64-bit ARM has, as the system says: bits of Linux's AT_HWCAP and AT_HWCAP2; 0 elsewhere than on ARM. */
typedef struct ds_system_arm {
    unsigned long hwcap, hwcap2;
} ds_system_arm;
ds_system_arm ds_system_read_arm(void);
