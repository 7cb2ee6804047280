/* base/alloc and fault: sizes, alignment, hooks, injected failures. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "check.h"
#include "fault.h"

static void test_sizes(const ds_allocator *allocator)
{
    for (size_t n = 1; n < 300; n++) {
        unsigned char *bytes = NULL;
        CHECK(ds_allocate(allocator, (void **)&bytes, n) == DS_OK);
        CHECK(bytes != NULL && (uintptr_t)bytes % DS_ALIGNMENT == 0);
        memset(bytes, 0xAA, n);
        ds_release(allocator, bytes, n);
        CHECK(ds_allocate_zeroed(allocator, (void **)&bytes, n) == DS_OK);
        CHECK((uintptr_t)bytes % DS_ALIGNMENT == 0);
        for (size_t i = 0; i < n; i++)
            CHECK(bytes[i] == 0);
        ds_release(allocator, bytes, n);
    }

    int something;
    void *pointer = &something;
    CHECK(ds_allocate(allocator, &pointer, 0) == DS_OK && pointer == NULL);
    pointer = &something;
    CHECK(ds_allocate_zeroed(allocator, &pointer, 0) == DS_OK && pointer == NULL);
    pointer = &something;
    ds_release(allocator, NULL, 10);

    size_t n_bytes = 9;
    CHECK(ds_array_bytes(&n_bytes, 0, 8) == DS_OK && n_bytes == 0);
    CHECK(ds_array_bytes(&n_bytes, 7, 24) == DS_OK && n_bytes == (size_t)7 * 24);
    CHECK(ds_allocate(allocator, &pointer, n_bytes) == DS_OK);
    memset(pointer, 1, (size_t)7 * 24);
    ds_release(allocator, pointer, (size_t)7 * 24);

    /* what can't be had leaves the pointer as it was */
    pointer = &something;
    CHECK(ds_array_bytes(&n_bytes, SIZE_MAX / 2, 3) == DS_NO_MEMORY);
    CHECK(ds_array_bytes(&n_bytes, 3, SIZE_MAX / 2) == DS_NO_MEMORY);
    volatile size_t huge = SIZE_MAX; /* volatile: compilers warn of sizes that they can see */
    for (size_t less = 0; less < 200; less++)
        CHECK(ds_allocate(allocator, &pointer, huge - less) == DS_NO_MEMORY);
    CHECK(ds_allocate_zeroed(allocator, &pointer, huge / 2 + 1) == DS_NO_MEMORY);
    CHECK(pointer == (void *)&something);
    CHECK(strstr(ds_last_error(), "out of memory") != NULL);
}

TEST(default)
{
    const ds_allocator current = ds_allocator_current();
    CHECK(current.allocate == ds_default_allocator()->allocate);
    CHECK(current.release == ds_default_allocator()->release);

    static ds_fault_allocator fault;
    ds_fault_init(&fault);
    ds_allocator hooks = ds_fault_hooks(&fault);
    CHECK(ds_set_allocator(&hooks) == DS_OK);
    const ds_allocator snapshot = ds_allocator_current();
    CHECK(snapshot.context == hooks.context);
    CHECK(snapshot.allocate == hooks.allocate && snapshot.release == hooks.release);

    ds_allocator half = hooks;
    half.release = NULL;
    CHECK(ds_set_allocator(&half) == DS_ARGUMENT);
    half = hooks;
    half.allocate = NULL;
    CHECK(ds_set_allocator(&half) == DS_ARGUMENT);
    CHECK(ds_allocator_current().allocate == hooks.allocate); /* a refused one changes nothing */

    void *pointer = NULL;
    CHECK(ds_allocate(&snapshot, &pointer, 100) == DS_OK);
    CHECK(ds_set_allocator(NULL) == DS_OK);
    CHECK(ds_allocator_current().allocate == ds_default_allocator()->allocate);
    CHECK(ds_fault_live_blocks(&fault) == 1);
    ds_release(&snapshot, pointer, 100); /* by the snapshot, whatever is current */
    CHECK(ds_fault_live_blocks(&fault) == 0);
}

static void *allocate_misaligned(void *context, size_t n_bytes, size_t alignment)
{
    char *bytes = ds_default_allocator()->allocate(NULL, n_bytes + alignment, alignment);
    return bytes == NULL ? NULL : bytes + *(const size_t *)context;
}

static void release_misaligned(void *context, void *pointer, size_t n_bytes)
{
    ds_default_allocator()->release(NULL, (char *)pointer - *(const size_t *)context, n_bytes);
}

TEST(misaligned)
{
    size_t shift = 16;
    const ds_allocator hooks = {&shift, allocate_misaligned, release_misaligned};
    int something;
    void *pointer = &something;
    CHECK(ds_allocate(&hooks, &pointer, 100) == DS_ARGUMENT); /* given back: sanitizers look */
    CHECK(pointer == (void *)&something);
    shift = 64;
    CHECK(ds_allocate(&hooks, &pointer, 100) == DS_OK);
    ds_release(&hooks, pointer, 100);
}

TEST(fault_counts)
{
    static ds_fault_allocator fault;
    ds_fault_init(&fault);
    const ds_allocator hooks = ds_fault_hooks(&fault);
    void *a = NULL, *b = NULL;
    CHECK(ds_allocate(&hooks, &a, 100) == DS_OK);
    CHECK(ds_allocate(&hooks, &b, 28) == DS_OK);
    CHECK(ds_fault_live_bytes(&fault) == 128 && ds_fault_live_blocks(&fault) == 2);
    ds_release(&hooks, a, 100);
    CHECK(ds_fault_live_bytes(&fault) == 28 && ds_fault_live_blocks(&fault) == 1);
    ds_release(&hooks, b, 27); /* a lie about the size */
    CHECK(ds_fault_bad_releases(&fault) == 1 && ds_fault_live_blocks(&fault) == 1);
    ds_release(&hooks, b, 28);
    char foreign[128] = {0};
    ds_release(&hooks, foreign + 64, 28);
    CHECK(ds_fault_bad_releases(&fault) == 2);
    CHECK(ds_fault_live_bytes(&fault) == 0 && ds_fault_live_blocks(&fault) == 0);
    CHECK(ds_fault_peak_bytes(&fault) == 128);
    CHECK(ds_fault_calls(&fault) == 2 && ds_fault_failures(&fault) == 0);
}

/* Makes three allocations; on failure it holds none. */
static ds_status make_three(const ds_allocator *allocator, void *made[3])
{
    made[0] = made[1] = made[2] = NULL;
    for (size_t i = 0; i < 3; i++) {
        const ds_status status = ds_allocate(allocator, &made[i], 10 + i);
        if (status != DS_OK) {
            while (i-- > 0)
                ds_release(allocator, made[i], 10 + i);
            return status;
        }
    }
    return DS_OK;
}

TEST(fault_injection)
{
    static ds_fault_allocator fault;
    ds_fault_init(&fault);
    const ds_allocator hooks = ds_fault_hooks(&fault);
    for (int persistent = 0; persistent < 2; persistent++) {
        for (size_t nth = 1; nth <= 4; nth++) {
            void *made[3];
            ds_fault_arm(&fault, nth, persistent == 1);
            const ds_status status = make_three(&hooks, made);
            CHECK(status == (nth <= 3 ? DS_NO_MEMORY : DS_OK));
            CHECK(ds_fault_live_blocks(&fault) == (nth <= 3 ? 0 : 3));
            if (nth <= 3) { /* the failure has passed, or it stays */
                void *again[3];
                CHECK(make_three(&hooks, again) == (persistent ? DS_NO_MEMORY : DS_OK));
                for (size_t i = 0; i < 3 && !persistent; i++)
                    ds_release(&hooks, again[i], 10 + i);
            } else {
                for (size_t i = 0; i < 3; i++)
                    ds_release(&hooks, made[i], 10 + i);
            }
            ds_fault_disarm(&fault);
            CHECK(make_three(&hooks, made) == DS_OK);
            for (size_t i = 0; i < 3; i++)
                ds_release(&hooks, made[i], 10 + i);
        }
    }
    CHECK(ds_fault_failures(&fault) == 3 + 2 * 3);
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
}

enum { N_THREADS = 4, N_ROUNDS = 2000 };

static ds_fault_allocator faults[2];
static atomic_size_t n_refused;

/* allocates by whatever is current, and changes what is */
static void *use_and_swap(void *argument)
{
    const size_t me = (size_t)((ds_fault_allocator *)argument - faults);
    for (size_t i = 0; i < N_ROUNDS; i++) {
        const ds_allocator mine = ds_allocator_current();
        void *pointer = NULL;
        if (ds_allocate(&mine, &pointer, 1 + i % 200) == DS_OK)
            memset(pointer, 1, 1 + i % 200);
        else
            atomic_fetch_add(&n_refused, 1);
        if (i % 3 == me) {
            const ds_allocator hooks = ds_fault_hooks(&faults[i % 2]);
            CHECK(ds_set_allocator(i % 5 == 0 ? NULL : &hooks) == DS_OK);
        }
        ds_release(&mine, pointer, 1 + i % 200);
    }
    return NULL;
}

TEST(threads)
{
    ds_fault_init(&faults[0]);
    ds_fault_init(&faults[1]);
    const ds_allocator hooks = ds_fault_hooks(&faults[0]);
    CHECK(ds_set_allocator(&hooks) == DS_OK);
    ds_fault_arm(&faults[0], 10, false);
    pthread_t threads[N_THREADS];
    for (size_t i = 0; i < N_THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_and_swap, &faults[i % 2]) == 0);
    for (size_t i = 0; i < N_THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(ds_set_allocator(NULL) == DS_OK);
    CHECK(atomic_load(&n_refused) <= 1);
    CHECK(ds_fault_failures(&faults[0]) == atomic_load(&n_refused));
    for (size_t i = 0; i < 2; i++) {
        CHECK(ds_fault_live_bytes(&faults[i]) == 0 && ds_fault_live_blocks(&faults[i]) == 0);
        CHECK(ds_fault_bad_releases(&faults[i]) == 0);
        CHECK(ds_fault_peak_bytes(&faults[i]) > 0);
    }
}

int main(void)
{
    test_sizes(NULL);
    static ds_fault_allocator fault;
    ds_fault_init(&fault);
    const ds_allocator hooks = ds_fault_hooks(&fault);
    test_sizes(&hooks);
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
    run_tests();
    return check_report();
}
