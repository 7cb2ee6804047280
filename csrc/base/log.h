/* Messages to the callback that the user has set (ds_set_log); without one they cost a few loads.
 *
 * For what was chosen and what is odd, never for errors (those are statuses) and not per step. */
#pragma once
#include "base/status.h"

/* Sends one message, cut to DS_MESSAGE_BYTES. Cannot fail. Thread: any. */
void ds_log(ds_log_level level, const char *format, ...) DS_PRINTF(2, 3);
