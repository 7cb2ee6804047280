/* codec/mapped: users that come and go in several threads. */
#include <pthread.h>

#include "check.h"
#include "codec/mapped.h"
#include "fault.h"

static void *use(void *argument)
{
    ds_mapped *mapped = argument;
    for (int i = 0; i < 20000; i++) {
        ds_mapped *mine = ds_mapped_share(mapped);
        CHECK(((const unsigned char *)ds_mapped_bytes(mine))[1] == 'b');
        ds_mapped_release(mine);
    }
    ds_mapped_release(mapped);
    return NULL;
}

int main(void)
{
    static ds_fault_allocator fault;
    ds_fault_init(&fault);
    const ds_allocator hooks = ds_fault_hooks(&fault);
    for (int round = 0; round < 5; round++) {
        ds_mapped *mapped = NULL;
        CHECK(ds_mapped_copy(&mapped, &hooks, "abc", 3) == DS_OK);
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_create(&threads[i], NULL, use, ds_mapped_share(mapped)) == 0);
        }
        ds_mapped_release(mapped); /* the threads hold it now */
        for (int i = 0; i < 3; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
        CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
    }
    return check_report();
}
