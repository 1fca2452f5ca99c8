/* SPDX-License-Identifier: MIT */
/* Numbers in a form for people. Each function writes into memory of the caller and returns it. */
#ifndef STINT_CMD_LIB_FORMAT_H
#define STINT_CMD_LIB_FORMAT_H

#include <stddef.h>
#include <stdint.h>

struct formatted {
    char text[48];
};

const char *format_count(struct formatted *formatted, uint64_t number); /* 1,234,567 */
const char *format_bytes(struct formatted *formatted, uint64_t bytes);  /* 36.5 MB */
const char *format_percent(struct formatted *formatted, uint64_t part, uint64_t whole); /* 12.3 % */
const char *format_duration(struct formatted *formatted, uint64_t ns);   /* 1 h 30 min */
const char *format_seconds_up(struct formatted *formatted, uint64_t ns); /* 20 s, rounded up */
/* 0.250: seconds with three decimals, rounded up; or "never". */
const char *format_wait(struct formatted *formatted, uint64_t ns);
const char *format_date(struct formatted *formatted,
                        uint64_t since_1970_ns); /* 2015-05-17 10:05:03 UTC */

#endif
