/* The version of the library, as compiled in. */
#include "dreamstream.h"

const char *ds_version(void)
{
    return DS_VERSION_STRING;
}

uint32_t ds_abi_version(void)
{
    return DS_ABI_VERSION;
}
