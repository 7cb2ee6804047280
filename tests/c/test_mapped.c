/* codec/mapped: files mapped and read, copies. */
#define _POSIX_C_SOURCE 200809L

#include "codec/mapped.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools.h"

typedef ds_status (*opener)(ds_mapped **mapped, const ds_allocator *allocator, const char *path);

static const opener openers[] = {ds_mapped_open, ds_mapped_read};

static char folder[64] = "/tmp/test_mapped_XXXXXX";
static char path[128];

static void write_file(size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    for (size_t i = 0; i < n_bytes; i++)
        CHECK(fputc((int)(i * 31 % 251), file) != EOF);
    CHECK(fclose(file) == 0);
}

static void check_bytes(const ds_mapped *mapped, size_t n_bytes)
{
    CHECK(ds_mapped_size(mapped) == n_bytes);
    const unsigned char *bytes = ds_mapped_bytes(mapped);
    CHECK(bytes != NULL && (uintptr_t)bytes % DS_ALIGNMENT == 0);
    for (size_t i = 0; i < n_bytes; i++)
        CHECK(bytes[i] == i * 31 % 251);
}

TEST(files)
{
    static const size_t sizes[] = {0, 1, 63, 4096, 4097, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < 2; k++) {
            write_file(sizes[i]);
            ds_mapped *mapped = NULL;
            CHECK(openers[k](&mapped, NULL, path) == DS_OK);
            check_bytes(mapped, sizes[i]);
            CHECK(unlink(path) == 0); /* the bytes stay */
            CHECK(ds_mapped_share(mapped) == mapped);
            ds_mapped_release(mapped);
            check_bytes(mapped, sizes[i]);
            ds_mapped_release(mapped);
        }
    }
    ds_mapped_release(NULL);
}

/* Pages of files that count as this process's memory; 0 where the system doesn't say. */
static size_t file_pages(void)
{
    unsigned long size, resident, shared = 0;
    FILE *about = fopen("/proc/self/statm", "r");
    if (about != NULL) {
        CHECK(fscanf(about, "%lu %lu %lu", &size, &resident, &shared) == 3);
        CHECK(fclose(about) == 0);
    }
    return shared;
}

/* What was forgotten is there when it is read again, and takes no memory until then. */
TEST(forget)
{
    static const size_t sizes[] = {0, 1, 5000, 2 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        write_file(sizes[i]);
        for (size_t k = 0; k < 3; k++) {
            ds_mapped *file = NULL, *mapped = NULL;
            CHECK(openers[k % 2](&file, NULL, path) == DS_OK);
            if (k == 2)
                CHECK(ds_mapped_copy(&mapped, NULL, ds_mapped_bytes(file), sizes[i]) == DS_OK);
            else
                mapped = ds_mapped_share(file);
            for (int round = 0; round < 3; round++) {
                check_bytes(mapped, sizes[i]);
                const size_t before = file_pages();
                ds_mapped_forget(mapped);
                if (k == 0 && sizes[i] > 1 << 20 && before > 0)
                    CHECK(file_pages() + 256 < before);
            }
            check_bytes(mapped, sizes[i]);
            ds_mapped_release(mapped);
            ds_mapped_release(file);
        }
        CHECK(unlink(path) == 0);
    }
}

static void check_refused(ds_status status, const char *message)
{
    for (size_t k = 0; k < 2; k++) {
        int something;
        ds_mapped *mapped = (ds_mapped *)&something;
        CHECK(openers[k](&mapped, NULL, path) == status);
        CHECK(mapped == (ds_mapped *)&something);
        CHECK(strstr(ds_last_error(), path) == ds_last_error());
        CHECK(strstr(ds_last_error(), message) != NULL);
    }
}

TEST(refused)
{
    check_refused(DS_FORMAT, "can't open it: No such file");
    CHECK(mkdir(path, 0700) == 0);
    check_refused(DS_FORMAT, "expected a regular file, got a folder");
    CHECK(rmdir(path) == 0);
    CHECK(mkfifo(path, 0600) == 0); /* nobody writes: opening it must not wait */
    check_refused(DS_FORMAT, "expected a regular file, got something else");
    CHECK(unlink(path) == 0);

    write_file(10);
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const struct rlimit none = {3, limit.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    check_refused(DS_LIMIT, "can't open it: Too many open files");
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* No descriptor stays open, whatever happens. */
TEST(descriptors)
{
    write_file(10);
    const int before = dup(0);
    CHECK(before >= 0 && close(before) == 0);
    ds_mapped *kept[2];
    for (size_t k = 0; k < 2; k++) {
        CHECK(openers[k](&kept[k], NULL, path) == DS_OK);
        ds_mapped *mapped = NULL;
        CHECK(openers[k](&mapped, NULL, folder) == DS_FORMAT);
    }
    const int after = dup(0);
    CHECK(after == before && close(after) == 0);
    ds_mapped_release(kept[0]);
    ds_mapped_release(kept[1]);
}

TEST(copy)
{
    unsigned char bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 31 % 251);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        ds_mapped *mapped = NULL;
        CHECK(ds_mapped_copy(&mapped, NULL, n > 0 ? bytes : NULL, n) == DS_OK);
        check_bytes(mapped, n);
        ds_mapped_release(mapped);
    }
}

static ds_status open_any(ds_mapped **mapped, const ds_allocator *allocator, int which)
{
    return which < 2 ? openers[which](mapped, allocator, path)
                     : ds_mapped_copy(mapped, allocator, "some bytes", 10);
}

TEST(no_memory)
{
    write_file(5000);
    for (int which = 0; which < 3; which++) {
        count_memory();
        for (size_t nth = 1;; nth++) {
            ds_fault_arm(&fault, nth, false);
            ds_mapped *mapped = NULL;
            const ds_status status = open_any(&mapped, &hooks, which);
            CHECK(status == (ds_fault_failures(&fault) >= nth ? DS_NO_MEMORY : DS_OK));
            ds_mapped_release(mapped);
            CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
            if (status == DS_OK) {
                CHECK(nth == (which == 0 ? 2 : 3));
                break;
            }
        }
    }
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof path, "%s/file", folder);
    run_tests();
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    return check_report();
}
