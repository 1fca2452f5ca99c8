/* SPDX-License-Identifier: MIT */
/* Numbers as a person reads them. Each writes into memory of the caller's and returns it. */
#ifndef STINT_CMD_LIB_HUMAN_H
#define STINT_CMD_LIB_HUMAN_H

#include <stddef.h>
#include <stdint.h>

struct human {
    char text[48];
};

const char *human_count(struct human *human, uint64_t number);                 /* 1,234,567 */
const char *human_bytes(struct human *human, uint64_t bytes);                  /* 36.5 MB */
const char *human_percent(struct human *human, uint64_t part, uint64_t whole); /* 12.3 % */
const char *human_duration(struct human *human, uint64_t ns);                  /* 1 h 30 min */
const char *human_seconds_up(struct human *human, uint64_t ns); /* 20 s, never too short */
/* 0.250: seconds with three decimals, never too short; or "never". */
const char *human_wait(struct human *human, uint64_t ns);
const char *human_date(struct human *human, uint64_t since_1970_ns); /* 2015-05-17 10:05:03 UTC */

#endif
