/* The allocator that counts and fails.
 *
 * A block is [padding to the alignment][header][the user's bytes]: the header ends where the user's
 * bytes begin, for release is not told the alignment. A release clears `magic`, so that a second
 * one is noticed as far as the memory has not been given out again. */
#include "fault.h"

#include <string.h>

static const uint64_t magic = UINT64_C(0xD5A110CA7EDB10C5);

/* What memory holds when it is given out, and when it is taken back. As a word of 64 bits the first
 * is a large positive integer, as a float a number that no computation here gives. */
enum { FRESH = 0x5A, GONE = 0xDD };

typedef struct block_header {
    uint64_t magic;
    size_t n_bytes;
    size_t n_whole; /* bytes of the block, from its padding on */
    size_t offset;  /* where in it the user's bytes begin */
} block_header;

/* ---------------------------------------------------------------- blocks */
static void *block_allocate(void *context, size_t n_bytes, size_t alignment)
{
    (void)context;
    const size_t offset = (sizeof(block_header) + alignment - 1) / alignment * alignment;
    if (n_bytes > PTRDIFF_MAX - offset)
        return NULL;
    char *whole = ds_default_allocator()->allocate(NULL, offset + n_bytes, alignment);
    if (whole == NULL)
        return NULL;
    const block_header header = {magic, n_bytes, offset + n_bytes, offset};
    memcpy(whole + offset - sizeof header, &header, sizeof header);
    return memset(whole + offset, FRESH, n_bytes);
}

static block_header header_of(const char *bytes)
{
    block_header header;
    memcpy(&header, bytes - sizeof header, sizeof header);
    return header;
}

static void block_release(void *context, void *pointer, size_t n_bytes)
{
    (void)context;
    char *bytes = pointer;
    const block_header header = header_of(bytes);
    memset(bytes, GONE, n_bytes);
    memset(bytes - sizeof header, 0, sizeof header);
    ds_default_allocator()->release(NULL, bytes - header.offset, header.n_whole);
}

/* ---------------------------------------------------------------- faults */
/* Counts this call and decides whether it fails. */
static bool fails_now(ds_fault_allocator *fault)
{
    atomic_fetch_add(&fault->calls, 1);
    size_t left = atomic_load(&fault->countdown);
    while (left > 0) {
        /* a persistent fault stays at 1, so that every later call finds it there */
        const bool stays = left == 1 && atomic_load(&fault->persistent);
        if (!atomic_compare_exchange_weak(&fault->countdown, &left, stays ? 1 : left - 1))
            continue;
        if (left == 1)
            atomic_fetch_add(&fault->failures, 1);
        return left == 1;
    }
    return false;
}

static void *fault_allocate(void *context, size_t n_bytes, size_t alignment)
{
    ds_fault_allocator *fault = context;
    const ds_allocator live = ds_counted_hooks(&fault->live);
    return fails_now(fault) ? NULL : live.allocate(live.context, n_bytes, alignment);
}

static void fault_release(void *context, void *pointer, size_t n_bytes)
{
    ds_fault_allocator *fault = context;
    const ds_allocator live = ds_counted_hooks(&fault->live);
    const block_header header = header_of(pointer);
    if (header.magic == magic && header.n_bytes == n_bytes)
        live.release(live.context, pointer, n_bytes);
    else
        atomic_fetch_add(&fault->bad_releases, 1);
}

const size_t ds_fault_bytes = sizeof(ds_fault_allocator);

void ds_fault_init(ds_fault_allocator *fault)
{
    const ds_allocator blocks = {NULL, block_allocate, block_release};
    *fault = (ds_fault_allocator){.calls = 0};
    ds_counted_init(&fault->live, &blocks);
}

ds_allocator ds_fault_hooks(ds_fault_allocator *fault)
{
    return (ds_allocator){fault, fault_allocate, fault_release};
}

void ds_fault_arm(ds_fault_allocator *fault, size_t nth, bool persistent)
{
    atomic_store(&fault->countdown, 0);
    atomic_store(&fault->persistent, persistent);
    atomic_store(&fault->countdown, nth);
}

void ds_fault_disarm(ds_fault_allocator *fault)
{
    ds_fault_arm(fault, 0, false);
}

/* ---------------------------------------------------------------- what was counted */
#define COUNT(name, field)                                  \
    size_t ds_fault_##name(const ds_fault_allocator *fault) \
    {                                                       \
        return atomic_load(&fault->field);                  \
    }
COUNT(live_bytes, live.bytes)
COUNT(live_blocks, live.blocks)
COUNT(peak_bytes, live.peak_bytes)
COUNT(calls, calls)
COUNT(failures, failures)
COUNT(bad_releases, bad_releases)
