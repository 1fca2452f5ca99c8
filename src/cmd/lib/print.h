/* SPDX-License-Identifier: MIT */
/* What commands print: messages beside the results, untrusted texts, numbers, and JSON. */
#ifndef STINT_CMD_LIB_PRINT_H
#define STINT_CMD_LIB_PRINT_H

#include "base/err.h"
#include "base/span.h"
#include "cmd/lib/cmd.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* One line on standard error, after "stint: ", as format_text() shows it: a part may be of a log.
 */
void print_message(const char *format, ...) ERR_PRINTF(1, 2);
/* The same where a command fails: its value is the exit code. */
#define print_failure(...) (print_message(__VA_ARGS__), CMD_BAD_INPUT)

/* Replaces control characters by `?` in an untrusted text that is to be printed. */
void hide_controls(char *text);

/*
 * An untrusted text, such as a key, for a terminal: on one line, and visible. ASCII controls and
 * bytes that are not UTF-8 become \xHH, and the other characters that utf8_is_hidden() knows \u{H}.
 * Returns `to`, cut before what does not fit.
 */
const char *format_text(char *to, size_t size, struct span text);
void print_escaped(FILE *out, struct span key);
/* A text as YAML, in double quotes. */
void print_yaml_text(FILE *out, struct span text);
void print_between(const char *before, struct span text, const char *after);

/* ---- Numbers, for people ----
 *
 * Each function writes into memory of the caller and returns it.
 */

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

/* ---- JSON ---- */

/* A key as text; bytes that are not UTF-8 become U+FFFD, as JSON has no others. */
json_t *json_text_key(struct span key);

/* A number; null for STINT_NEVER_NS and everything else that JSON's integers cannot hold. */
json_t *json_text_ns(uint64_t ns);

/*
 * Prints the object on one line (pretty: on several) and frees it. CMD_DONE, or CMD_BAD_INPUT if it
 * is NULL or there is no memory, which is reported, or if standard output cannot be written.
 */
int json_text_print(json_t *object, bool pretty);

/* ---- Progress -------------------------------------------------------------------------------- */

/* A progress bar on standard error for long work; nothing if that is no terminal. */

struct progress {
    uint64_t total;   /* bytes, or what `what` names; 0 = unknown */
    const char *what; /* may be set after the start; NULL: bytes */
    uint64_t begun_ns, next_ns;
    bool shown, wanted;
};

void progress_begin(struct progress *progress, uint64_t total);
void progress_step(struct progress *progress, uint64_t done);
/* Removes the bar. */
void progress_end(struct progress *progress);

#endif
