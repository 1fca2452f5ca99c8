/* SPDX-License-Identifier: MIT */
/* Makes descriptors of events, and counts the results by rule. */
#define _GNU_SOURCE
#include "cmd/replay/replay_rules.h"

#include "base/buf.h"
#include "base/limits.h"
#include "base/wide_int.h"
#include "cmd/lib/print.h"

#include <stdlib.h>
#include <sys/random.h>

#define BLOCKS 65536 /* banned keys */

/* ---- Descriptors ----------------------------------------------------------------------------- */

/* Cuts the text up to a byte, or all of it, off the rest. False if there is none left. */
static bool cut(struct span *rest, char at, struct span *piece)
{
    if (rest->ptr == NULL)
        return false;
    const uint8_t *end = memchr(rest->ptr, at, rest->len);
    *piece = span_of(rest->ptr, end != NULL ? (size_t)(end - rest->ptr) : rest->len);
    *rest = end != NULL ? span_of(end + 1, rest->len - piece->len - 1) : span_of(NULL, 0);
    *piece = span_trim(*piece);
    return true;
}

static int find_column(struct replay_rules *rules, struct span name, size_t *column,
                       struct stint_error *error)
{
    for (size_t i = 0; i < rules->n_columns; i++)
        if (rules->columns[i].len == name.len &&
            memcmp(rules->columns[i].ptr, name.ptr, name.len) == 0) {
            *column = i;
            return 0;
        }
    if (rules->n_columns == JOINED_KEY_PARTS_MAX)
        return err_set(error, STINT_E_RANGE, "--descriptors: expected at most %d different columns",
                       JOINED_KEY_PARTS_MAX);
    *column = rules->n_columns;
    rules->columns[rules->n_columns++] = name;
    return 0;
}

/* COLUMN, KEY=COLUMN; the key of `ip/64` is ip. */
static int read_entry(struct replay_rules *rules, struct span text,
                      struct replay_descriptor *descriptor, struct stint_error *error)
{
    struct span rest = text, key, column;
    if (descriptor->n_entries == ENTRIES_MAX)
        return err_set(error, STINT_E_RANGE, "--descriptors: expected at most %d entries each",
                       ENTRIES_MAX);
    bool has_key = memchr(text.ptr, '=', text.len) != NULL;
    cut(&rest, '=', &key);
    column = has_key ? span_trim(rest) : key;
    if (!has_key) {
        struct span of = key;
        cut(&of, '/', &key);
    }
    if (key.len == 0 || column.len == 0 || memchr(column.ptr, '+', column.len) != NULL)
        return err_set(error, STINT_E_SYNTAX,
                       "--descriptors: expected COLUMN or KEY=COLUMN, separated by `,`, and `;` "
                       "between descriptors, such as 'ip,path;user', found '%.*s'",
                       (int)text.len, (const char *)text.ptr);
    struct replay_entry *entry = &descriptor->entries[descriptor->n_entries++];
    entry->key = key;
    return find_column(rules, column, &entry->column, error);
}

static int read_descriptors(struct replay_rules *rules, struct stint_error *error)
{
    struct span rest = span_of_text(rules->options->descriptors), list, entry;
    int code = 0;
    while (code == 0 && cut(&rest, ';', &list)) {
        if (rules->n_descriptors == DESCRIPTORS_MAX)
            return err_set(error, STINT_E_RANGE, "--descriptors: expected at most %d",
                           DESCRIPTORS_MAX);
        struct replay_descriptor *descriptor = &rules->descriptors[rules->n_descriptors++];
        while (code == 0 && cut(&list, ',', &entry))
            code = read_entry(rules, entry, descriptor, error);
    }
    return code;
}

int replay_rules_check(const struct replay_rules_options *options, struct stint_error *error)
{
    struct replay_rules *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    made->options = options;
    int code = read_descriptors(made, error);
    free(made);
    return code;
}

static int join_columns(struct replay_rules *rules, struct stint_error *error)
{
    size_t size = strlen(rules->options->descriptors) + 1;
    rules->key_expr = calloc(1, size);
    if (rules->key_expr == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    struct buf expr = buf_of(rules->key_expr, size);
    for (size_t i = 0; i < rules->n_columns; i++)
        buf_add(&expr, "%s%.*s", i > 0 ? "+" : "", (int)rules->columns[i].len,
                (const char *)rules->columns[i].ptr);
    return 0;
}

/* ---- Requests -------------------------------------------------------------------------------- */

/* Splits an event's key into the values of the columns: see event.h. */
static void split_key(struct replay_rules *rules, struct span key, struct span *values)
{
    size_t at = 0, column = 0;
    if (rules->n_columns == 1) {
        values[0] = key;
        return;
    }
    values[0] = span_of(rules->parts, 0);
    for (size_t i = 0; i < key.len; i++) {
        uint8_t byte = key.ptr[i];
        if (byte == '+') {
            values[++column] = span_of(rules->parts + at, 0);
            continue;
        }
        if (byte == '\\')
            byte = key.ptr[++i];
        rules->parts[at++] = byte;
        values[column].len++;
    }
}

/* Evaluates a request that was begun. */
static struct stint_decision evaluate(struct evaluation *evaluation, uint8_t verb)
{
    return verb == STINT_TAKE        ? evaluation_take(evaluation)
           : verb == STINT_TAKE_UPTO ? evaluation_take_upto(evaluation)
                                     : evaluation_peek(evaluation);
}

/* Begins the request of an event; nothing is evaluated yet. */
static int begin_request(struct replay_rules *rules, const struct replay_rules_event *event,
                         struct evaluation *evaluation, struct stint_error *error)
{
    struct descriptor_entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    struct span values[JOINED_KEY_PARTS_MAX];
    split_key(rules, event->key, values);
    for (size_t d = 0; d < rules->n_descriptors; d++) {
        const struct replay_descriptor *from = &rules->descriptors[d];
        for (size_t i = 0; i < from->n_entries; i++)
            entries[d][i] =
                (struct descriptor_entry){from->entries[i].key, values[from->entries[i].column]};
        descriptors[d] = (struct descriptor){.entries = entries[d], .n_entries = from->n_entries};
    }
    const struct evaluation_ask what = {.rules = rules->loaded.rules,
                                        .domain = span_of_text(rules->options->domain),
                                        .descriptors = descriptors,
                                        .n_descriptors = rules->n_descriptors,
                                        .cost = event->cost};
    evaluation_begin(evaluation, event->now_ns);
    return evaluation_add_descriptors(evaluation, &what, error);
}

/* ---- A shared store -------------------------------------------------------------------------- */

static int store_accepts(const struct replay_rules *rules, const struct rule *rule,
                         const struct stint_quota *quota, struct stint_error *error)
{
    struct stint_error why;
    int code = rules->stores[0]->ops->accepts(rules->stores[0], quota, &why);
    return code == 0 ? 0 : err_set(error, code, "%s: %s", rule->path, why.message);
}

static int store_open(struct replay_rules *rules, const struct stint_table_options *options,
                      struct shared_session *session, struct stint_error *error)
{
    struct stint_table_options own = *options;
    int code = 0;
    rules->stores[0] = &session->blocking;
    rules->given = (struct evaluation_stores){.stores = rules->stores,
                                              .n_stores = 1,
                                              .timeout_ns = session->timeout_ns,
                                              .items_on_error = RULE_STORE_ERROR_ERROR};
    for (size_t i = 0; i < rules_count(rules->loaded.rules) && code == 0; i++) {
        const struct rule *rule = rules_at(rules->loaded.rules, i);
        if (rule->store.label == NULL)
            continue;
        if (!rule->unlimited)
            code = store_accepts(rules, rule, &rule->quota, error);
        if (code == 0 && rule->has_shadow)
            code = store_accepts(rules, rule, &rule->shadow, error);
    }
    own.path = NULL;
    if (code == 0)
        code = stint_table_open(&rules->store_table, &own, error);
    if (code == 0)
        code = evaluation_init(&rules->store_evaluation, rules->store_table, error);
    rules->store_evaluation.stores = &rules->given;
    return code;
}

/* The targets as rules have them; those of any store are in this store. */
static int store_begin(struct replay_rules *rules, const struct replay_rules_event *event,
                       struct stint_error *error)
{
    struct evaluation *evaluation = &rules->store_evaluation;
    int code = begin_request(rules, event, evaluation, error);
    for (size_t i = 0; code == 0 && i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        target->store = target->rule != NULL && target->rule->store.label != NULL;
        target->on_error = RULE_STORE_ERROR_ERROR;
    }
    if (code == 0)
        evaluation->pending =
            pending_new(&rules->pending_requests, event->now_ns, rules->given.timeout_ns);
    return code == 0 && evaluation->pending == NULL
               ? err_set(error, STINT_E_SYSTEM, "out of memory for a request to the store")
               : code;
}

/* STINT_E_GONE: the store did not answer. */
static int store_end(struct replay_rules *rules, struct stint_error *error)
{
    struct evaluation *evaluation = &rules->store_evaluation;
    const char *why = evaluation->fault_message;
    int code = evaluation->fault == 0                 ? 0
               : evaluation->fault == BACKEND_REFUSED ? STINT_E_MISMATCH
                                                      : STINT_E_GONE;
    if (code != 0)
        err_set(error, code, "--store: %s", why != NULL ? why : "no answer came in time");
    pending_free(evaluation->pending);
    evaluation->pending = NULL;
    return code;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static int open_rules(struct replay_rules *rules, struct stint_error *error)
{
    uint64_t secret[2];
    size_t n_rules = rules_count(rules->loaded.rules);
    rules->rules = calloc(n_rules + 1, sizeof(*rules->rules));
    if (rules->rules == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for %zu rules", n_rules);
    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return err_set(error, STINT_E_SYSTEM, "the system gives no random bytes");
    for (size_t i = 0; i < n_rules; i++) {
        const struct rule *rule = rules_at(rules->loaded.rules, i);
        uint64_t period_ns = rule->unlimited ? 1 : rule->quota.period_ns;
        key_set_init(&rules->rules[i].keys, secret);
        exact_init(&rules->rules[i].exact, &period_ns, 1);
    }
    if (!rules_has_domain(rules->loaded.rules, span_of_text(rules->options->domain)))
        return err_set(error, STINT_E_MISMATCH, "no file of rules has the domain %s",
                       rules->options->domain);
    return 0;
}

int replay_rules_open(struct replay_rules **rules, const struct replay_rules_options *options,
                      struct stint_error *error)
{
    struct replay_rules *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    made->options = options;
    if (!rules_given_load(&options->files, &made->loaded)) {
        free(made);
        return err_set(error, STINT_E_SYNTAX, "the rules cannot be used");
    }
    int code = open_rules(made, error);
    if (code == 0)
        code = read_descriptors(made, error);
    if (code == 0)
        code = join_columns(made, error);
    if (code != 0)
        replay_rules_close(made);
    else
        *rules = made;
    return code;
}

void replay_rules_close(struct replay_rules *rules)
{
    if (rules == NULL)
        return;
    for (size_t i = 0; rules->rules != NULL && i < rules_count(rules->loaded.rules); i++) {
        key_set_deinit(&rules->rules[i].keys);
        exact_deinit(&rules->rules[i].exact);
    }
    evaluation_deinit(&rules->evaluation);
    evaluation_deinit(&rules->store_evaluation);
    stint_table_close(rules->store_table);
    pending_requests_deinit(&rules->pending_requests);
    rules_loaded_free(&rules->loaded);
    free(rules->rules);
    free(rules->key_expr);
    free(rules);
}

/* ---- The table ------------------------------------------------------------------------------- */

/* Which classes of states the rules use, and how many states of each one descriptor can need. */
static void add_space(struct stint_table_options *table, const struct stint_quota *quota,
                      uint64_t times[3])
{
    size_t size = stint_state_size(quota), class = size <= 8 ? 0 : size <= 16 ? 1 : 2;
    times[class] = 1;
    if (class == 2)
        table->wide_size = (uint32_t)max_u64(table->wide_size, size);
}

void replay_rules_size(const struct replay_rules *rules, uint64_t keys,
                       struct stint_table_options *table)
{
    uint64_t live[3] = {0}, candidates[3] = {0}, bans[3] = {0};
    size_t n_rules = rules_count(rules->loaded.rules);
    for (size_t i = 0; i < n_rules; i++) {
        const struct rule *rule = rules_at(rules->loaded.rules, i);
        if (!rule->unlimited)
            add_space(table, &rule->quota, live);
        if (rule->has_shadow)
            add_space(table, &rule->shadow, candidates);
        if (rule->ban.after > 0)
            bans[1] = 1; /* where denials are counted */
    }
    uint64_t each = keys > 0 ? keys : REPLAY_KEYS_DEFAULT;
    uint64_t wide = table->wide_size > 0 ? REPLAY_WIDE_BYTES_DEFAULT / table->wide_size : 0;
    uint64_t times[3];
    for (int class = 0; class < 3; class ++)
        times[class] = rules->n_descriptors * (live[class] + candidates[class] + bans[class]);
    table->keys = max_u64(each * times[0], 1);
    table->keys16 = max_u64(each * times[1], 1);
    table->keys_wide =
        max_u64((keys > 0 ? keys : min_u64(REPLAY_KEYS_DEFAULT, wide)) * times[2], 1);
    table->wide_size = (uint32_t)max_u64(table->wide_size, 16);
    table->tickets = 1;
    table->blocks = bans[1] > 0 ? BLOCKS : 1;
    table->quotas = (uint32_t)min_u64(max_u64(3 * n_rules, 1024), TABLE_QUOTAS_MAX);
}

int replay_rules_begin(struct replay_rules *rules, struct stint_table *table,
                       const struct stint_table_options *options, struct shared_session *session,
                       struct stint_error *error)
{
    int code = evaluation_accepts(table, rules->loaded.rules, error);
    if (code == 0)
        code = evaluation_init(&rules->evaluation, table, error);
    return code == 0 && session != NULL ? store_open(rules, options, session, error) : code;
}

/* ---- Deciding -------------------------------------------------------------------------------- */

/* Counts what was admitted under an enforced rule, and the key with the most. */
static int count_exact(struct replay_rules *rules, const struct evaluation *evaluation,
                       const struct target *target, uint64_t units,
                       const struct replay_rules_event *event, struct stint_error *error)
{
    struct replay_rule *counts = &rules->rules[target->rule->index];
    uint32_t key;
    uint64_t most = counts->exact.most[0].units;
    int code = key_set_add(&counts->keys, target->key, &key, error);
    if (code == 0)
        code = exact_add(&counts->exact, key, (struct exact_run){event->now_ns, units}, error);
    if (code == 0 && counts->exact.most[0].units > most) {
        counts->most_event = event->number;
        counts->most_descriptor = (size_t)(target - evaluation->targets);
    }
    return code;
}

static int count(struct replay_rules *rules, const struct evaluation *evaluation,
                 const struct target *target, const struct replay_rules_event *event,
                 uint32_t granted, struct stint_error *error)
{
    struct replay_rule *counts = &rules->rules[target->rule->index];
    counts->events++;
    counts->replaced += target->is_replaced;
    counts->over += target->over;
    counts->denied += target->over && target->part == TARGET_LIVE && !target->excluded;
    counts->banned += target->banned;
    counts->candidate_over += target->shadow_over;
    counts->units_allowed += granted;
    counts->units_denied += event->cost - granted;
    bool is_counted = target->part == TARGET_LIVE && !target->excluded && granted > 0 &&
                      event->verb != STINT_PEEK;
    return is_counted ? count_exact(rules, evaluation, target, granted, event, error) : 0;
}

/* The units that were granted of an event's cost. */
static uint32_t granted_of(const struct replay_rules_event *event,
                           const struct stint_decision *decision)
{
    if (decision->outcome != STINT_ALLOW)
        return 0;
    return event->verb == STINT_TAKE_UPTO ? (uint32_t)min_u64(decision->granted, event->cost)
                                          : event->cost;
}

int replay_rules_decide(struct replay_rules *rules, const struct replay_rules_event *event,
                        struct stint_decision *decision, struct stint_decision *engine,
                        struct stint_error *error)
{
    struct evaluation *evaluation = &rules->evaluation;
    int code = begin_request(rules, event, evaluation, error);
    if (code != 0)
        return code;
    *decision = *engine = evaluate(evaluation, event->verb);
    if (rules->stores[0] != NULL) {
        evaluation = &rules->store_evaluation;
        code = store_begin(rules, event, error);
        if (code != 0)
            return code;
        *decision = evaluate(evaluation, event->verb);
        code = store_end(rules, error);
    }
    if (code != 0)
        return code;
    engine->granted = granted_of(event, engine);
    decision->granted = granted_of(event, decision);
    rules->unmatched += evaluation->n_unmatched;
    rules->bans_lost += evaluation->bans_lost;
    for (size_t i = 0; code == 0 && i < evaluation->n_targets; i++)
        if (evaluation->targets[i].rule != NULL)
            code =
                count(rules, evaluation, &evaluation->targets[i], event, decision->granted, error);
    return code;
}

struct span replay_rules_most_key(struct replay_rules *rules, const struct replay_rule *counts,
                                  const struct key_set *names)
{
    const struct replay_descriptor *descriptor = &rules->descriptors[counts->most_descriptor];
    struct span values[JOINED_KEY_PARTS_MAX], parts[ENTRIES_MAX], key;
    split_key(rules, key_set_name(names, counts->most_event), values);
    for (size_t i = 0; i < descriptor->n_entries; i++)
        parts[i] = values[descriptor->entries[i].column];
    if (joined_key_make(&rules->joined, &key, parts, descriptor->n_entries, NULL) != 0)
        return key_set_name(names, counts->most_event);
    return key;
}

/* ---- The end --------------------------------------------------------------------------------- */

int replay_rules_clean(struct replay_rules *rules, const struct key_set *names,
                       struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < names->n_keys && code == 0; i++) {
        const struct replay_rules_event event = {.key = key_set_name(names, (uint32_t)i)};
        code = store_begin(rules, &event, error);
        if (code != 0)
            return code;
        evaluation_reset(&rules->store_evaluation);
        code = store_end(rules, error);
    }
    return code;
}
