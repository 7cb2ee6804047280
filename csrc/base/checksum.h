/* A number that tells whether memory holds what it held before. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Of n_bytes bytes, on this machine and in this build: for comparisons while a process runs, not for files. */
uint64_t ds_checksum(const void *bytes, size_t n_bytes);
