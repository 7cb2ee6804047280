/* Programs that are their tests: all of them run, and what they take from `hooks` comes back. */
#pragma once

#include "tools.h"

int main(void)
{
    count_memory();
    run_tests();
    return report_memory();
}
