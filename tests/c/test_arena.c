/* base/arena: what was pushed stays, rounds settle, failures lose nothing. */
#include "base/arena.h"
#include "main.h"

enum { N_PUSHES = 40 };

typedef struct pushed {
    unsigned char *bytes;
    size_t n_bytes;
} pushed;

/* Pushes blocks of these sizes, fills each with its own number, then looks at all of them. */
static void push_all(ds_arena *arena, const size_t sizes[N_PUSHES])
{
    pushed all[N_PUSHES];
    for (size_t i = 0; i < N_PUSHES; i++) {
        all[i].n_bytes = sizes[i];
        CHECK(ds_arena_push(arena, (void **)&all[i].bytes, sizes[i]) == DS_OK);
        CHECK((all[i].bytes == NULL) == (sizes[i] == 0));
        CHECK((uintptr_t)all[i].bytes % DS_ALIGNMENT == 0);
        if (sizes[i] > 0)
            memset(all[i].bytes, (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < N_PUSHES; i++) {
        for (size_t k = 0; k < all[i].n_bytes; k++)
            if (all[i].bytes[k] != i + 1)
                CHECK(!"a later push wrote over an earlier one");
    }
}

TEST(rounds)
{
    count_memory();
    ds_arena arena;
    ds_arena_init(&arena, &hooks);
    CHECK(arena.n_held == 0 && ds_fault_calls(&fault) == 0);
    ds_arena_reset(&arena); /* of an empty one */

    for (int round = 0; round < 50; round++) {
        size_t sizes[N_PUSHES];
        const size_t largest = (size_t)1 << random_below(16);
        for (size_t i = 0; i < N_PUSHES; i++)
            sizes[i] = random_below(8) == 0 ? 0 : (size_t)random_below((int64_t)largest) + 1;
        push_all(&arena, sizes); /* may add blocks */
        ds_arena_reset(&arena);
        push_all(&arena, sizes); /* may replace several by one */
        CHECK(ds_fault_live_blocks(&fault) == 1);
        const size_t n_calls = ds_fault_calls(&fault);
        for (int again = 0; again < 3; again++) {
            ds_arena_reset(&arena);
            push_all(&arena, sizes);
        }
        for (size_t i = 0; i < N_PUSHES / 2; i++) { /* another order, and some smaller */
            const size_t size = sizes[i];
            sizes[i] = sizes[N_PUSHES - 1 - i];
            sizes[N_PUSHES - 1 - i] = size / 2;
        }
        ds_arena_reset(&arena);
        push_all(&arena, sizes);
        CHECK(ds_fault_calls(&fault) == n_calls);
        CHECK(arena.n_held == ds_fault_live_bytes(&fault));
        if (round % 10 == 9) {
            ds_arena_free(&arena);
            CHECK(arena.n_held == 0 && ds_fault_live_blocks(&fault) == 0);
        }
        ds_arena_reset(&arena);
    }
    ds_arena_free(&arena);
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
}

TEST(growth)
{
    count_memory();
    ds_arena arena;
    ds_arena_init(&arena, &hooks);
    for (int i = 0; i < 16384; i++) { /* 1 MiB, or twice that with red zones */
        void *pointer = NULL;
        CHECK(ds_arena_push(&arena, &pointer, 64) == DS_OK);
    }
    CHECK(ds_fault_calls(&fault) < 14); /* logarithmic */
    const size_t n_held = arena.n_held;
    CHECK(n_held < (size_t)6 << 20);
    ds_arena_reset(&arena);
    CHECK(arena.n_held == n_held);
    void *pointer = NULL;
    CHECK(ds_arena_push(&arena, &pointer, 1) == DS_OK);
    CHECK(ds_fault_live_blocks(&fault) == 1 && arena.n_held == n_held);
    CHECK(ds_fault_peak_bytes(&fault) == n_held); /* the old ones went first */
    ds_arena_free(&arena);
}

TEST(failures)
{
    count_memory();
    ds_arena arena;
    ds_arena_init(&arena, &hooks);
    int something;
    void *pointer = &something;

    /* the first block */
    ds_fault_arm(&fault, 1, false);
    CHECK(ds_arena_push(&arena, &pointer, 100) == DS_NO_MEMORY && pointer == (void *)&something);
    CHECK(ds_arena_push(&arena, &pointer, 100) == DS_OK);
    unsigned char *first = pointer;
    memset(first, 7, 100);

    /* a further block: what was pushed stays, and the arena goes on */
    ds_fault_arm(&fault, 1, true);
    CHECK(ds_arena_push(&arena, &pointer, 10000) == DS_NO_MEMORY);
    CHECK(ds_arena_push(&arena, &pointer, 100) == DS_OK); /* there is room for this one */
    ds_fault_disarm(&fault);
    CHECK(ds_arena_push(&arena, &pointer, 10000) == DS_OK);
    memset(pointer, 8, 10000);
    CHECK(first[0] == 7 && first[99] == 7);

    /* the one that replaces two */
    ds_arena_reset(&arena);
    ds_fault_arm(&fault, 1, false);
    CHECK(ds_arena_push(&arena, &pointer, 10000) == DS_NO_MEMORY);
    CHECK(arena.n_held == ds_fault_live_bytes(&fault));
    CHECK(ds_arena_push(&arena, &pointer, 10000) == DS_OK);
    memset(pointer, 9, 10000);

    /* sizes that can't be */
    volatile size_t huge = SIZE_MAX;
    for (size_t less = 0; less < 300; less++) {
        CHECK(ds_arena_push(&arena, &pointer, huge - less) == DS_NO_MEMORY);
        CHECK(ds_arena_push(&arena, &pointer, huge / 2 + 1 + less) == DS_NO_MEMORY);
    }
    CHECK(ds_arena_push_array(&arena, &pointer, huge / 2, 3) == DS_NO_MEMORY);
    CHECK(ds_arena_push_array(&arena, &pointer, 3, 0) == DS_OK && pointer == NULL);
    CHECK(ds_arena_push_array(&arena, &pointer, 3, 50) == DS_OK && pointer != NULL);
    memset(pointer, 1, 150);
    ds_arena_free(&arena);
    CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>

TEST(poison)
{
    ds_arena arena;
    ds_arena_init(&arena, NULL);
    unsigned char *a = NULL, *b = NULL;
    CHECK(ds_arena_push(&arena, (void **)&a, 13) == DS_OK);
    CHECK(ds_arena_push(&arena, (void **)&b, 64) == DS_OK);
    CHECK(!__asan_address_is_poisoned(a + 12) && __asan_address_is_poisoned(a + 13));
    CHECK(__asan_address_is_poisoned(b - 1));
    CHECK(!__asan_address_is_poisoned(b + 63) && __asan_address_is_poisoned(b + 64));
    ds_arena_reset(&arena);
    CHECK(__asan_address_is_poisoned(a) && __asan_address_is_poisoned(b));
    CHECK(ds_arena_push(&arena, (void **)&b, 3) == DS_OK && b == a);
    CHECK(!__asan_address_is_poisoned(a + 2) && __asan_address_is_poisoned(a + 3));
    ds_arena_free(&arena);
}
#endif
