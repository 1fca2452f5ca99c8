/* SPDX-License-Identifier: MIT */
/* The formats of traces and logs, and which of them a line is in. */
#ifndef STINT_SIM_INPUT_LOG_FORMAT_H
#define STINT_SIM_INPUT_LOG_FORMAT_H

#include "base/span.h"

enum log_format {
    LOG_ANY, /* not known yet, or none of these */
    LOG_TRACE,
    LOG_COMBINED, /* and common */
    LOG_JSONL,
};

/* LOG_ANY: the line is in no known format, is blank, or a comment. */
enum log_format log_format_of(struct span line);

#endif
