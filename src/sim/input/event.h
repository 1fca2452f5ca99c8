/* SPDX-License-Identifier: MIT */
/* One request of a trace or a log: time, key and cost. The line parsers fill it. */
#ifndef STINT_SIM_INPUT_EVENT_H
#define STINT_SIM_INPUT_EVENT_H

#include "base/span.h"

/* The result of a parser; a negative enum stint_code says that the line is malformed. */
enum event_line {
    EVENT_NONE = 0, /* blank, or a comment */
    EVENT_FOUND = 1,
};

struct event {
    uint64_t at_ns;  /* since 0 in a trace, since 1970 in a log */
    struct span key; /* borrowed from the line or the parser, until the next line is parsed */
    uint32_t cost;
    uint8_t decimals; /* of the seconds, as the input writes them */
};

#endif
