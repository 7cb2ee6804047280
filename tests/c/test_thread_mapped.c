/* codec/mapped: users that come and go in several threads. */
#include "codec/mapped.h"
#include "tools.h"

#ifdef __SANITIZE_THREAD__ /* which sees what could have met, not only what met */
enum { TIMES = 2000 };
#else
enum { TIMES = 20000 };
#endif

static void *use(void *argument)
{
    ds_mapped *mapped = argument;
    for (int i = 0; i < TIMES; i++) {
        ds_mapped *mine = ds_mapped_share(mapped);
        CHECK(((const unsigned char *)ds_mapped_bytes(mine))[1] == 'b');
        ds_mapped_release(mine);
    }
    ds_mapped_release(mapped);
    return NULL;
}

int main(void)
{
    count_memory();
    for (int round = 0; round < 5; round++) {
        ds_mapped *mapped = NULL;
        CHECK(ds_mapped_copy(&mapped, &hooks, "abc", 3) == DS_OK);
        (void)ds_mapped_share(mapped); /* the threads hold it now: one each */
        (void)ds_mapped_share(mapped);
        in_parallel(3, use, use, mapped, 0);
        CHECK(ds_fault_live_blocks(&fault) == 0 && ds_fault_bad_releases(&fault) == 0);
    }
    return report_memory();
}
