/* The time, for measuring how long ago something was. */
#pragma once
/* Returns seconds since some moment, the same for the whole process; never goes back. Thread: any. */
double ds_now(void);
