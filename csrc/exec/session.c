/* exec/session.c: slots, made once and used again; tails that grow with their streams.
 *
 * The first slots are allocated one by one. Where there are many, a step that meets a little of each waits for look-ups
 * of their pages more than for their memory: further ones lie in lots, for which the allocator asks for large pages. */
#include "exec/session.h"

#include <string.h>

#include "base/lock.h"

enum { LOT_BYTES = 4 << 20 };

struct ds_session {
    const ds_plan *plan;
    pthread_mutex_t lock; /* guards what follows */
    ds_slot *lots;        /* the first slot of each, the newest first */
    size_t n_used;        /* of the newest; of all others all are */
    size_t n_bytes;       /* of all */
    ds_slot *free;
    size_t n_open, max_streams;
};

ds_status ds_session_create(ds_session **session, const ds_plan *plan, size_t max_streams)
{
    DS_TRY(ds_allocate(&plan->allocator, (void **)session, sizeof **session));
    **session =
        (ds_session){.plan = plan, .lock = PTHREAD_MUTEX_INITIALIZER, .max_streams = max_streams};
    return DS_OK;
}

/* A slot, its tails and its block lie in one piece, the block aligned. */
static size_t head_bytes(const ds_plan *plan)
{
    return ds_aligned(sizeof(ds_slot) + (size_t)plan->n_tails * sizeof(ds_tail));
}

static size_t slot_bytes(const ds_plan *plan)
{
    return head_bytes(plan) + ds_aligned(plan->block_bytes);
}

static ds_slot *slot_at(const ds_plan *plan, ds_slot *lot, size_t i)
{
    return (ds_slot *)(void *)((char *)lot + i * slot_bytes(plan));
}

static void release_tails(ds_session *session, ds_slot *slot)
{
    for (int t = 0; t < session->plan->n_tails; t++) {
        ds_release(&session->plan->allocator, slot->tails[t].data, slot->tails[t].n_bytes);
        slot->tails[t] = (ds_tail){0};
    }
}

void ds_session_destroy(ds_session *session)
{
    if (!session)
        return;
    const ds_plan *plan = session->plan;
    for (ds_slot *lot = session->lots, *next; lot; lot = next) {
        const size_t n = lot == session->lots ? session->n_used : lot->n_slots;
        next = lot->next;
        for (size_t i = 0; i < n; i++)
            release_tails(session, slot_at(plan, lot, i));
        ds_release(&plan->allocator, lot, lot->n_slots > 1 ? LOT_BYTES : slot_bytes(plan));
    }
    pthread_mutex_destroy(&session->lock);
    ds_release(&plan->allocator, session, sizeof *session);
}

/* A slot that nobody has used yet. Under the session's lock. */
static ds_status make_slot(ds_session *session, ds_slot **slot)
{
    const ds_plan *plan = session->plan;
    const size_t each = slot_bytes(plan);
    const size_t n_bytes =
        session->n_bytes >= LOT_BYTES / 2 && each <= LOT_BYTES / 2 ? LOT_BYTES : each;
    ds_slot *lot = session->lots, *s;
    if (lot && session->n_used < lot->n_slots) {
        s = slot_at(plan, lot, session->n_used++);
        memset(s, 0, head_bytes(plan));
    } else {
        DS_TRY(ds_allocate(&plan->allocator, (void **)&s, n_bytes));
        memset(s, 0, head_bytes(plan));
        s->next = lot;
        s->n_slots = n_bytes / each;
        session->lots = s;
        session->n_used = 1;
        session->n_bytes += n_bytes;
    }
    atomic_init(&s->busy, false);
    s->block = (ds_block *)(void *)((char *)s + head_bytes(plan));
    *slot = s;
    return DS_OK;
}

static void clear_block(const ds_plan *plan, ds_slot *slot)
{
    memset(slot->block, 0, plan->block_bytes);
    memcpy(slot->block->fingerprint, plan->origin, sizeof plan->origin);
    slot->block->version = 1;
    slot->block->n_inputs = (uint32_t)plan->graph->n_inputs;
}

/* One that is free, or a new one; it counts unless it is spare. */
static ds_status take_slot(ds_session *session, ds_slot **slot, bool spare)
{
    const size_t most = session->max_streams;
    DS_LOCKED(&session->lock);
    DS_CHECK(spare || !most || session->n_open < most, DS_LIMIT,
             "%zu streams are open, which is the limit (max_streams)", most);
    if (session->free) {
        *slot = session->free;
        session->free = session->free->next_free;
    } else {
        DS_TRY(make_slot(session, slot));
    }
    session->n_open += !spare;
    return DS_OK;
}

ds_status ds_session_open(ds_session *session, ds_slot **slot, bool spare)
{
    DS_TRY(take_slot(session, slot, spare));
    clear_block(session->plan, *slot);
    (*slot)->last_used = 0;
    (*slot)->spare = spare;
    return DS_OK;
}

void ds_session_count(ds_session *session, ds_slot *slot)
{
    DS_LOCKED(&session->lock);
    session->n_open += slot->spare;
    slot->spare = false;
}

void ds_session_close(ds_session *session, ds_slot *slot)
{
    /* What grew with the stream goes back at once; the fixed block waits for the next stream. */
    release_tails(session, slot);
    DS_LOCKED(&session->lock);
    slot->next_free = session->free;
    session->free = slot;
    session->n_open -= !slot->spare;
}

void ds_session_clear(ds_session *session, ds_slot *slot)
{
    release_tails(session, slot);
    clear_block(session->plan, slot);
}

size_t ds_session_n_open(ds_session *session)
{
    DS_LOCKED(&session->lock);
    return session->n_open;
}

bool ds_slot_enter(ds_slot *slot)
{
    return !atomic_exchange_explicit(&slot->busy, true, memory_order_acquire);
}

void ds_slot_leave(ds_slot *slot)
{
    atomic_store_explicit(&slot->busy, false, memory_order_release);
}

/* Makes the room n_bytes or more; `n_used` bytes from `from` on come to its front. */
static ds_status grow_tail(const ds_allocator *allocator, ds_tail *tail, size_t from, size_t n_used,
                           size_t n_bytes)
{
    size_t room = tail->n_bytes ? tail->n_bytes : 4096;
    while (room < n_bytes && room <= SIZE_MAX / 2)
        room *= 2;
    if (room < n_bytes)
        room = n_bytes;
    void *larger;
    DS_TRY(ds_allocate(allocator, &larger, room));
    if (n_used)
        memcpy(larger, (const char *)tail->data + from, n_used);
    ds_release(allocator, tail->data, tail->n_bytes);
    tail->data = larger;
    tail->n_bytes = room;
    return DS_OK;
}

ds_status ds_tail_reserve(const ds_allocator *allocator, ds_tail *tail, int64_t kept, int64_t fresh,
                          size_t frame_bytes)
{
    const size_t from = (size_t)tail->first * frame_bytes, n_kept = (size_t)kept * frame_bytes;
    size_t n_bytes;
    DS_CHECK(!__builtin_mul_overflow((size_t)(kept + fresh), frame_bytes, &n_bytes) &&
                 n_bytes <= SIZE_MAX / 2,
             DS_NO_MEMORY, "%lld frames of %zu bytes do not fit into memory",
             (long long)(kept + fresh), frame_bytes);
    if (from + n_bytes <= tail->n_bytes)
        return DS_OK;
    if (n_bytes <= tail->n_bytes / 2) /* half of the room has been passed since the last move */
        memmove(tail->data, (const char *)tail->data + from, n_kept);
    else
        DS_TRY(grow_tail(allocator, tail, from, n_kept, n_bytes));
    tail->first = 0;
    return DS_OK;
}

ds_status ds_tail_grow(const ds_allocator *allocator, ds_tail *tail, size_t n_bytes)
{
    return n_bytes <= tail->n_bytes ? DS_OK : grow_tail(allocator, tail, 0, tail->n_bytes, n_bytes);
}
