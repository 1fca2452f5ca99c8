/* SPDX-License-Identifier: MIT */
/*
 * A limiter inside a program: one quota, a table of keys, and a global that needs no table.
 *
 *     cc -std=c17 embed.c $(pkg-config --cflags --libs stint) -o embed
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <stint.h>

/* Answers one request of a client, as a server would before it does the work. */
static void serve(struct stint_table *table, const struct stint_quota *quota, const char *client)
{
    struct stint_decision decision = stint_take_now(table, quota, client, strlen(client), 1);

    switch (decision.outcome) {
    case STINT_ALLOW:
        printf("%s: served, %" PRIu32 " of %" PRIu32 " left\n", client, decision.remaining,
               decision.limit);
        break;
    case STINT_DENY:
        /* Rounded up: a client that waits a whole second too little would be denied again. */
        printf("%s: 429, Retry-After: %" PRIu64 "\n", client,
               (decision.retry_after_ns + 999999999) / 1000000000);
        break;
    default:
        printf("%s: this can never fit\n", client);
    }
}

int main(void)
{
    struct stint_error error;
    struct stint_quota quota;
    struct stint_table *table;

    if (stint_quota_parse(&quota, "window 3/60s", &error) < 0 ||
        stint_table_open(&table, NULL, &error) < 0) {
        fprintf(stderr, "embed: %s\n", error.message);
        return 1;
    }
    for (int i = 0; i < 4; i++)
        serve(table, &quota, "203.0.113.9");
    serve(table, &quota, "198.51.100.7");
    stint_table_close(table);

    /* One state of the program's own: say, how often it may log the same warning. */
    struct stint_quota warnings;
    static struct stint_cell8 cell;
    if (stint_quota_parse(&warnings, "gcra 5/1h burst=2", &error) < 0) {
        fprintf(stderr, "embed: %s\n", error.message);
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        if (stint_cell8_take(&warnings, &cell, 0, 1).outcome == STINT_ALLOW)
            printf("warning: the disk is nearly full\n");
    }
    return 0;
}
