/* SPDX-License-Identifier: MIT */
/*
 * Checks histories that were recorded elsewhere, on stdin:
 *
 *     history FLAGS SPEC                    FLAGS: a sum of 1 lists_at_once, 2 denials_may_be_old
 *     CALLER BEGIN END VERB KEY IS_LIST COST OUTCOME GRANTED REMAINING
 *     end
 *
 * All calls have one time, and waits are not compared. Prints a line for each history, and exits
 * with 1 if one is not linearizable.
 */
#include "linear/linear.h"

#include "base/ns.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_MAX 2048
#define NOW_NS (1000 * 3600 * NS_PER_S)

static struct linear_call calls[CALLS_MAX];

static bool read_call(const char *line, struct linear_call *call)
{
    struct stint_decision *decision = &call->decision;
    unsigned is_list;
    *call = (struct linear_call){.ask = {.now_ns = NOW_NS}};
    int n = sscanf(line,
                   "%" SCNu8 " %" SCNu64 " %" SCNu64 " %" SCNu8 " %" SCNu8 " %u %" SCNu32 " %" SCNu8
                   " %" SCNu32 " %" SCNu32,
                   &call->caller, &call->begin, &call->end, &call->ask.verb, &call->key, &is_list,
                   &call->ask.cost, &decision->outcome, &decision->granted, &decision->remaining);
    call->is_list = is_list != 0;
    return n == 10 && call->caller < LINEAR_CALLERS_MAX && call->key < LINEAR_KEYS &&
           call->ask.verb <= STINT_CHARGE && call->begin <= call->end;
}

/* True: it is linearizable. */
static bool read_history(const char *head)
{
    char line[256];
    struct stint_error error;
    struct stint_quota quota;
    unsigned flags = (unsigned)strtoul(head, NULL, 10);
    struct linear_history history = {.quota = &quota,
                                     .calls = calls,
                                     .skew_max_ns = NS_PER_S,
                                     .counts_only = true,
                                     .lists_at_once = (flags & 1) != 0,
                                     .denials_may_be_old = (flags & 2) != 0};
    if (stint_quota_parse(&quota, strchr(head, ' ') + 1, &error) != 0) {
        fprintf(stderr, "%s\n", error.message);
        exit(2);
    }
    while (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "end\n") != 0) {
        if (history.n_calls == CALLS_MAX || !read_call(line, &calls[history.n_calls++])) {
            fprintf(stderr, "not a call: %s", line);
            exit(2);
        }
    }
    struct linear_verdict verdict = linear_check(&history);
    printf("%s, %zu calls, %zu overlap\n",
           verdict.is_linearizable ? "linearizable"
           : verdict.gave_up       ? "too many configurations"
                                   : "not linearizable",
           history.n_calls, verdict.overlaps);
    return verdict.is_linearizable;
}

int main(void)
{
    char line[256];
    bool is_good = true;
    while (fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "history ", 8) != 0 || strchr(line + 8, ' ') == NULL) {
            fprintf(stderr, "not the head of a history: %s\n", line);
            return 2;
        }
        is_good &= read_history(line + 8);
    }
    return is_good ? 0 : 1;
}
