/*
 * The allocator that counts and fails.
 *
 * A block is [padding to the alignment][header][the user's bytes]: the header ends where the user's
 * bytes begin, for release is not told the alignment. A release clears `magic`, so that a second
 * one is noticed as far as the memory has not been given out again.
 */
#include "base/fault.h"

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

/* Counts this call and decides whether it fails. */
static bool fails_now(ds_fault_allocator *fault)
{
    atomic_fetch_add(&fault->calls, 1);
    size_t left = atomic_load(&fault->countdown);
    while (left > 0) {
        /* a persistent fault stays at 1, so that every later call finds it there */
        const bool stays = left == 1 && atomic_load(&fault->persistent);
        if (atomic_compare_exchange_weak(&fault->countdown, &left, stays ? 1 : left - 1)) {
            if (left == 1) {
                atomic_fetch_add(&fault->failures, 1);
                return true;
            }
            return false;
        }
    }
    return false;
}

static void count_peak(ds_fault_allocator *fault, size_t live)
{
    size_t peak = atomic_load(&fault->peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&fault->peak_bytes, &peak, live)) {
    }
}

static void *fault_allocate(void *context, size_t n_bytes, size_t alignment)
{
    ds_fault_allocator *fault = context;
    if (fails_now(fault))
        return NULL;
    const size_t offset = (sizeof(block_header) + alignment - 1) / alignment * alignment;
    if (n_bytes > PTRDIFF_MAX - offset)
        return NULL;
    const ds_allocator *system = ds_default_allocator();
    char *whole = system->allocate(NULL, offset + n_bytes, alignment);
    if (whole == NULL)
        return NULL;
    const block_header header = {magic, n_bytes, offset + n_bytes, offset};
    memcpy(whole + offset - sizeof header, &header, sizeof header);
    memset(whole + offset, FRESH, n_bytes);
    atomic_fetch_add(&fault->live_blocks, 1);
    count_peak(fault, atomic_fetch_add(&fault->live_bytes, n_bytes) + n_bytes);
    return whole + offset;
}

static void fault_release(void *context, void *pointer, size_t n_bytes)
{
    ds_fault_allocator *fault = context;
    char *bytes = pointer;
    block_header header;
    memcpy(&header, bytes - sizeof header, sizeof header);
    if (header.magic != magic || header.n_bytes != n_bytes) {
        atomic_fetch_add(&fault->bad_releases, 1);
        return;
    }
    memset(bytes, GONE, n_bytes);
    memset(bytes - sizeof header, 0, sizeof header);
    atomic_fetch_sub(&fault->live_blocks, 1);
    atomic_fetch_sub(&fault->live_bytes, n_bytes);
    ds_default_allocator()->release(NULL, bytes - header.offset, header.n_whole);
}

void ds_fault_init(ds_fault_allocator *fault)
{
    atomic_init(&fault->live_bytes, 0);
    atomic_init(&fault->live_blocks, 0);
    atomic_init(&fault->peak_bytes, 0);
    atomic_init(&fault->calls, 0);
    atomic_init(&fault->failures, 0);
    atomic_init(&fault->bad_releases, 0);
    atomic_init(&fault->countdown, 0);
    atomic_init(&fault->persistent, false);
}

ds_allocator ds_fault_hooks(ds_fault_allocator *fault)
{
    const ds_allocator hooks = {fault, fault_allocate, fault_release};
    return hooks;
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

size_t ds_fault_live_bytes(const ds_fault_allocator *fault)
{
    return atomic_load(&fault->live_bytes);
}

size_t ds_fault_live_blocks(const ds_fault_allocator *fault)
{
    return atomic_load(&fault->live_blocks);
}

size_t ds_fault_peak_bytes(const ds_fault_allocator *fault)
{
    return atomic_load(&fault->peak_bytes);
}

size_t ds_fault_calls(const ds_fault_allocator *fault)
{
    return atomic_load(&fault->calls);
}

size_t ds_fault_failures(const ds_fault_allocator *fault)
{
    return atomic_load(&fault->failures);
}

size_t ds_fault_bad_releases(const ds_fault_allocator *fault)
{
    return atomic_load(&fault->bad_releases);
}
