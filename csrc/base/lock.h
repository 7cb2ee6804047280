/* Locks that are held until the end of a block. */
#pragma once
#include <pthread.h>

#include "base/status.h"

static inline void ds_lock_end(pthread_mutex_t *const *lock)
{
    pthread_mutex_unlock(*lock);
}

/* A declaration: takes the lock, and gives it back where the block ends. */
#define DS_LOCKED(lock)                                                \
    DS_SCOPED(ds_lock_end) pthread_mutex_t *const ds_locked_ = (lock); \
    pthread_mutex_lock(ds_locked_)
