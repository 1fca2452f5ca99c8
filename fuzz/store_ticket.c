/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a ticket of a store, with the sum that makes them one: refused with a message, or
 * of quotas and keys that a store can be asked about, and written again as it was read.
 */
#include "bytes.h"

#include "backend/store_key.h"
#include "base/siphash.h"
#include "decide/evaluation_ticket.h"

#include <string.h>

#define SUM_SIZE 8
#define KEY_SIZE 8192

static size_t add_sum(uint8_t *ticket, size_t len)
{
    static const uint64_t no_secret[2];
    uint64_t sum = siphash13_128(no_secret, 1, ticket, len).lo;
    for (size_t i = 0; i < SUM_SIZE; i++)
        ticket[len + i] = (uint8_t)(sum >> (56 - 8 * i));
    return len + SUM_SIZE;
}

/* A key in the store has its tag in one pair of braces, and is otherwise plain. */
static void check_key(const struct target *target)
{
    static char key[KEY_SIZE];
    const struct backend_item item = {.quota = target->quota,
                                      .rule = target->rule,
                                      .name = span_of_text(target->rule->store.name),
                                      .key = target->key,
                                      .is_values = target->is_values};
    size_t tag_len, len = store_key(&item, span_of_text("p:"), key, sizeof(key), &tag_len);
    MUST(len <= sizeof(key) && tag_len < len);
    MUST(memcmp(key, "p:{", 3) == 0 && key[tag_len - 1] == '}');
    for (size_t i = 3; i < len; i++) {
        MUST(key[i] > ' ' && key[i] < 127 && key[i] != '!' && key[i] != '{');
        MUST(key[i] != '}' || i == tag_len - 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const labels[] = {"default", ""};
    static const struct evaluation_stores stores = {.labels = labels, .n_stores = 2};
    static struct evaluation evaluation;
    static struct stint_table *table; /* opened once; tickets of a store do not use it */
    uint8_t ticket[TICKET_BYTES_MAX], again[TICKET_BYTES_MAX];
    struct stint_error error = {.code = 0};
    size_t len = size < TICKET_BYTES_MAX - SUM_SIZE ? size : TICKET_BYTES_MAX - SUM_SIZE;
    memcpy(ticket, data, len);
    len = add_sum(ticket, len);
    if (table == NULL) {
        const struct stint_table_options options = {.keys = 1};
        MUST(stint_table_open(&table, &options, NULL) == 0);
        MUST(evaluation_init(&evaluation, table, NULL) == 0);
        evaluation.stores = &stores;
    }
    evaluation_begin(&evaluation, 1);
    int code = evaluation_add_ticket(&evaluation, span_of(ticket, len), &error);
    MUST((code == 0) == (error.code == 0));
    if (code != 0) {
        MUST(error.message[0] != '\0');
        return 0;
    }
    MUST(evaluation.n_targets > 0 && evaluation.id != NULL && evaluation.is_ticket);
    for (size_t i = 0; i < evaluation.n_targets; i++)
        check_key(&evaluation.targets[i]);
    for (size_t i = 0; i < evaluation.n_targets; i++)
        if (evaluation.targets[i].part != TARGET_LIVE)
            return 0; /* which limit it was is of the request that made the ticket */
    /* What a text of a quota leaves open is written out: then the ticket is another, and stays so.
     */
    size_t written = evaluation_ticket_write(&evaluation, again);
    if (written > sizeof(again))
        return 0;
    evaluation_begin(&evaluation, 1);
    MUST(evaluation_add_ticket(&evaluation, span_of(again, written), NULL) == 0);
    MUST(evaluation_ticket_write(&evaluation, ticket) == written);
    MUST(memcmp(ticket, again, written) == 0);
    return 0;
}
