/* The time, for measuring how long ago something was. */
#ifndef DS_BASE_NOW_H
#define DS_BASE_NOW_H
/* Returns seconds since some moment, the same for the whole process; never goes back. Thread: any. */
double ds_now(void);

#endif
