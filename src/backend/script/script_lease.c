/* SPDX-License-Identifier: MIT */
/* Turns the words of the script without leases into those of the one with leases. */
#include "backend/script/script_lease.h"

#include "base/ns.h"

#include <assert.h>

#define WORD_KEY 3       /* behind EVALSHA, the hash, the number of keys */
#define WORDS_OF_QUOTA 9 /* verb cost now at limit period x y z */

static const struct lua_script *const scripts[][2] = {
    [STINT_WINDOW] = {&lua_script_lease_window, &lua_script_lease_window_once},
    [STINT_BUCKETS] = {&lua_script_lease_buckets, &lua_script_lease_buckets_once},
    [STINT_LOG] = {&lua_script_lease_log, &lua_script_lease_log_once},
    [STINT_GCRA] = {&lua_script_lease_gcra, &lua_script_lease_gcra_once},
    [STINT_FIXED_WINDOW] = {&lua_script_lease_fixed_window, &lua_script_lease_fixed_window_once},
    [STINT_SLIDING_COUNTER] = {&lua_script_lease_sliding_counter,
                               &lua_script_lease_sliding_counter_once},
};

bool script_is_leased(const struct backend_item *item)
{
    return item->rule != NULL && item->rule->store.lease != RULE_LEASE_NONE &&
           item->quota != &item->rule->shadow && /* a candidate admits nothing */
           item->quota->algorithm != STINT_CONCURRENCY && !item->quota->count_denied;
}

static void insert(struct script_command *command, size_t at, struct span word)
{
    assert(command->n_words < SCRIPT_WORDS_MAX);
    memmove(&command->words[at + 1], &command->words[at],
            (command->n_words - at) * sizeof(command->words[0]));
    command->words[at] = word;
    command->n_words++;
}

static void add_number(struct script_command *command, uint64_t number)
{
    char *end = command->digits + command->n_digits + SCRIPT_DIGITS_MAX, *digit = end;
    do
        *--digit = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    command->n_digits += SCRIPT_DIGITS_MAX;
    insert(command, command->n_words, span_of(digit, (size_t)(end - digit)));
}

/* Options that were left out are restored before those that follow them. */
static void fill_options(struct script_command *command, size_t first)
{
    while (command->n_words < first + WORDS_OF_QUOTA)
        insert(command, command->n_words, span_of_text("0"));
}

void script_command_leased(struct script_command *command, const struct script_item *item,
                           struct span leases, const struct script_ask *ask,
                           const struct script_lease *lease)
{
    bool lends = lease->verb == BACKEND_LEASE, has_id = ask->id != NULL;
    struct script_ask asked = *ask;
    assert(item->quota->algorithm != STINT_CONCURRENCY && lease->n_ended <= SCRIPT_ENDED_MAX);
    assert(!has_id || (!lends && lease->verb != BACKEND_RETURN && lease->n_ended == 0));
    if (lends)
        asked.at_ns = lease->least * NS_PER_US;
    script_command_one(command, item, &asked);
    command->script = scripts[item->quota->algorithm][has_id];
    command->words[1] = span_of(command->script->sha1, sizeof(command->script->sha1) - 1);
    command->words[2] = span_of_text(has_id ? "3" : "2");
    insert(command, WORD_KEY + 1, leases);
    size_t first = WORD_KEY + 2;
    if (lends || lease->verb == BACKEND_RETURN)
        command->words[first] = span_of_text(lends ? "lease" : "return");
    if (!lends && lease->n_ended == 0)
        return;
    fill_options(command, first);
    add_number(command, lends ? lease->term_ns / NS_PER_US : 0);
    for (size_t i = 0; i < lease->n_ended; i++) {
        add_number(command, lease->ended[i].ends_ns / NS_PER_US);
        add_number(command, lease->ended[i].units);
        add_number(command, lease->ended[i].left);
    }
}
