/* The version of the library, as compiled in. */
#include "dreamstream.h"

const char *ds_version(void)
{
    return DS_VERSION_STRING;
}
