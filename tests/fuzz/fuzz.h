/*
 * What fuzz targets share. A target is a file fuzz_<name>.c that defines
 *
 *     int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);
 *
 * which does whatever `data` leads to and returns 0; what must not be ends the process (FUZZ_CHECK, a
 * sanitizer). Built by clang with libFuzzer it is fed with inputs that are made up; built by any
 * compiler without DS_LIBFUZZER it is a program that runs the files named to it and their beginnings: of short ones
 * all, of longer ones every fourth, by turns. Include it in one file per program.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define FUZZ_CHECK(cond)                                                                  \
    do {                                                                                  \
        if (!(cond)) {                                                                    \
            fprintf(stderr, "%s:%d: FUZZ_CHECK(%s) failed\n", __FILE__, __LINE__, #cond); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

/* A refusal has a message of one line that says something. */
static inline void fuzz_check_refusal(ds_status status)
{
    FUZZ_CHECK(status == DS_FORMAT);
    FUZZ_CHECK(strstr(ds_last_error(), "expected") != NULL);
    FUZZ_CHECK(strpbrk(ds_last_error(), "\n\r") == NULL);
}

#ifndef DS_LIBFUZZER

/* Runs the first `n_bytes` of `data` in memory of their own size. */
static void replay(const uint8_t *data, size_t n_bytes)
{
    uint8_t *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, n_bytes);
    (void)LLVMFuzzerTestOneInput(copy, n_bytes);
    free(copy);
}

int main(int argc, char **argv)
{
    static uint8_t data[1 << 20];
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        FUZZ_CHECK(file != NULL);
        const size_t n_bytes = fread(data, 1, sizeof data, file);
        FUZZ_CHECK(n_bytes < sizeof data && fclose(file) == 0);
        const size_t step = n_bytes > 400 ? 4 : 1;
        for (size_t n = n_bytes > 4096 ? n_bytes : (size_t)i % step; n < n_bytes; n += step)
            replay(data, n);
        replay(data, n_bytes);
    }
    printf("%d files\n", argc - 1);
    return 0;
}

#endif /* DS_LIBFUZZER */

#endif
