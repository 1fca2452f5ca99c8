/* SPDX-License-Identifier: MIT */
/*
 * What script.h and store_key.h in backend/ make of asks, for test_store_words.py. A line is
 *     ask VERB NOW_NS AT_NS DEADLINE COUNT ID {TAB COST TAB RULE TAB KEY TAB SPEC}…
 *     all …                                the same, with the script itself in place of its hash
 *     read LISTED INTEGER…
 *     conflict TEXT
 * VERB and NOW_NS as numbers, NOW_NS of - for the store's time; ID is TEXT/BODY/LIFETIME_NS, or -.
 * Answered by a line: of an ask its words in hexadecimal; of a reply its decision, those of each
 * quota and the holders, between bars, or `none`; of an error 1 or 0.
 */
#include "backend/script/script.h"
#include "backend/store_key.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 65536
#define KEY_MAX 1024

static void print_words(const struct script_command *command)
{
    for (size_t i = 0; i < command->n_words; i++) {
        for (size_t at = 0; at < command->words[i].len; at++)
            printf("%02x", command->words[i].ptr[at]);
        putchar(i + 1 < command->n_words ? ' ' : '\n');
    }
}

static char *field(char **rest)
{
    char *found = strsep(rest, "\t\n");
    if (found == NULL) {
        fprintf(stderr, "words: a field is missing\n");
        exit(2);
    }
    return found;
}

static void ask(char *line, bool whole)
{
    static struct stint_quota quotas[STINT_ITEMS_MAX];
    static char keys[STINT_ITEMS_MAX][KEY_MAX];
    struct script_item items[STINT_ITEMS_MAX];
    struct script_command command;
    struct stint_error error;
    struct script_ask asked = {0};
    struct script_id id;
    char id_key[KEY_MAX], id_text[64], id_word[128];
    size_t n_items = 0;
    char *rest = line;
    char *head = field(&rest);
    unsigned verb;
    char now[32];
    if (sscanf(head, "%u %31s %" SCNu64 " %" SCNu64 " %" SCNu32 " %127s", &verb, now, &asked.at_ns,
               &asked.holder.deadline_us, &asked.holder.count, id_word) != 6)
        exit(2);
    if (sscanf(id_word, "%63[^/]/%" SCNu64 "/%" SCNu64, id_text, &id.body, &id.lifetime_ns) == 3) {
        int len = snprintf(id_key, sizeof(id_key), "stint:{tag}id:%s", id_text);
        id.key = span_of(id_key, (size_t)len);
        asked.id = &id;
    }
    asked.verb = (uint8_t)verb;
    asked.is_virtual = strcmp(now, "-") != 0;
    asked.now_ns = asked.is_virtual ? strtoull(now, NULL, 10) : 0;
    while (rest != NULL && *rest != '\0') {
        struct script_item *item = &items[n_items];
        item->cost = (uint32_t)strtoul(field(&rest), NULL, 10);
        struct backend_item named = {.quota = &quotas[n_items]};
        named.name = span_of_text(field(&rest));
        named.key = span_of_text(field(&rest));
        item->quota = &quotas[n_items];
        if (stint_quota_parse(&quotas[n_items], field(&rest), &error) != STINT_OK ||
            script_accepts(&quotas[n_items], &error) != STINT_OK) {
            printf("refused %s\n", error.message);
            return;
        }
        size_t tag_len;
        item->key = span_of(keys[n_items], store_key(&named, span_of_text("stint:"), keys[n_items],
                                                     sizeof(keys[n_items]), &tag_len));
        n_items++;
    }
    if (n_items == 1)
        script_command_one(&command, items, &asked);
    else
        script_command_list(&command, items, n_items, &asked);
    if (whole) { /* as it is sent after NOSCRIPT */
        command.words[0] = span_of_text("EVAL");
        command.words[1] = command.script->text;
    }
    print_words(&command);
}

static void print_decision(const struct stint_decision *decision)
{
    printf("%u %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu64 " %" PRIu64, decision->outcome,
           decision->granted, decision->limit, decision->remaining, decision->retry_after_ns,
           decision->reset_after_ns);
}

static void read_reply(char *line)
{
    int64_t values[SCRIPT_REPLY_MAX + 2];
    struct script_reply reply;
    size_t n_values = 0;
    size_t n_listed = strtoul(line, &line, 10);
    for (char *word = strtok(line, " \n"); word != NULL; word = strtok(NULL, " \n"))
        if (n_values < sizeof(values) / sizeof(values[0]))
            values[n_values++] = strtoll(word, NULL, 10);
    if (!script_reply_read(&reply, n_listed, values, n_values)) {
        puts("none");
        return;
    }
    print_decision(&reply.decision);
    printf(" %u %" PRIu64 " %d |", reply.decision.binding, reply.now_ns, reply.is_replayed);
    for (size_t i = 0; i < reply.n_each; i++) {
        putchar(' ');
        print_decision(&reply.each[i]);
    }
    printf(" |");
    for (size_t i = 0; i < reply.n_holders; i++)
        printf(" %" PRIu64 " %" PRIu32, reply.holders[i].deadline_us, reply.holders[i].count);
    putchar('\n');
}

int main(void)
{
    static char line[LINE_MAX_BYTES];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strncmp(line, "ask ", 4) == 0 || strncmp(line, "all ", 4) == 0)
            ask(line + 4, line[1] == 'l');
        else if (strncmp(line, "read ", 5) == 0)
            read_reply(line + 5);
        else if (strncmp(line, "conflict ", 9) == 0)
            printf("%d\n", script_is_conflict(span_of_text(line + 9)));
        else
            return 2;
        fflush(stdout);
    }
    return 0;
}
