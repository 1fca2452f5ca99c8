/* SPDX-License-Identifier: MIT */
/*
 * Files of rules, apart by NULs. What loads is asked for descriptors made of its own keys and
 * values, and must answer as a slow walk over all of its entries does; what does not load must say
 * where and why.
 */
#include "bytes.h"

#include "base/siphash.h"
#include "rules/rules_make.h"
#include "rules/yaml/rules_load.h"

#define FILES_MAX 4
#define ASKS 60

/* ---- The slow walk --------------------------------------------------------------------------- */

static bool is_same(struct span a, struct span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* By trying; inputs are short. A star is tried at every length, and the budget ends a bad one. */
static bool slow_matches(struct span pattern, struct span text, unsigned *budget)
{
    if (*budget == 0)
        return false;
    *budget -= 1;
    if (pattern.len == 0)
        return text.len == 0;
    struct span rest = span_of(pattern.ptr + 1, pattern.len - 1);
    if (pattern.ptr[0] != '*')
        return text.len > 0 && text.ptr[0] == pattern.ptr[0] &&
               slow_matches(rest, span_of(text.ptr + 1, text.len - 1), budget);
    for (size_t n = 0; n <= text.len; n++)
        if (slow_matches(rest, span_of(text.ptr + n, text.len - n), budget))
            return true;
    return false;
}

static uint32_t slow_step(const struct trie *trie, uint32_t above,
                          const struct descriptor_entry *entry, unsigned *budget)
{
    uint32_t exact = TRIE_NONE, wildcard = TRIE_NONE, bare = TRIE_NONE;
    for (uint32_t at = trie_next(trie, TRIE_NONE); at; at = trie_next(trie, at)) {
        const struct trie_node *node = trie_at(trie, at);
        const struct trie_node *key = node->kind > TRIE_KEY ? trie_at(trie, node->above) : node;
        if (!node->is_entry || key->kind != TRIE_KEY || key->above != above ||
            !is_same(trie_text(key), entry->key))
            continue;
        if (node->kind == TRIE_KEY)
            bare = at;
        else if (node->kind == TRIE_VALUE && is_same(trie_text(node), entry->value))
            exact = at;
        else if (node->kind == TRIE_WILDCARD && wildcard == TRIE_NONE &&
                 slow_matches(trie_text(node), entry->value, budget))
            wildcard = at;
    }
    return exact != TRIE_NONE ? exact : wildcard != TRIE_NONE ? wildcard : bare;
}

struct answer {
    const struct rule *rule;
    size_t key_len;
};

/* False where the budget does not suffice to say. */
static bool slow_match(const struct rules *rules, uint32_t domain,
                       const struct descriptor *descriptor, struct answer *answer)
{
    const struct trie *trie = &rules->trie;
    unsigned budget = 200000;
    uint32_t at = domain;
    *answer = (struct answer){.key_len = 8};
    for (size_t i = 0; i < descriptor->n_entries && at != TRIE_NONE; i++) {
        at = slow_step(trie, at, &descriptor->entries[i], &budget);
        if (at != TRIE_NONE)
            answer->key_len +=
                4 + (trie_at(trie, at)->is_shared ? trie_at(trie, at)->text_len
                                                  : descriptor->entries[i].value.len);
    }
    if (at != TRIE_NONE && trie_at(trie, at)->rule != RULE_NONE)
        answer->rule = rules_at(rules, trie_at(trie, at)->rule);
    return budget > 0;
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

/* Numbers that the input decides, and no byte of it is used up. */
struct dice {
    uint64_t seed, n_thrown;
};

static uint32_t throw_dice(struct dice *dice, uint32_t sides)
{
    const uint64_t secret[2] = {dice->seed, 1};
    return (uint32_t)(siphash13_128(secret, dice->n_thrown++, NULL, 0).lo % sides);
}

/* A value that the node itself may have meant, or one of another node, or an unknown one. */
static struct span draw_value(struct dice *dice, const struct trie_node *node, uint8_t *bytes)
{
    static const char *const usual[] = {"", "*", "a", "b/c/d", "x\0y", "192.0.2.1"};
    static const size_t lens[] = {0, 1, 1, 5, 3, 9};
    size_t len = 0;
    if (node->kind == TRIE_KEY || throw_dice(dice, 8) == 0) {
        uint32_t which = throw_dice(dice, 6);
        return span_of(usual[which], lens[which]);
    }
    for (size_t i = 0; i < node->text_len; i++) {
        uint8_t c = node->text[i];
        for (uint32_t n = c == '*' ? throw_dice(dice, 3) : 1; n > 0; n--)
            bytes[len++] = c == '*' ? (uint8_t)('a' + throw_dice(dice, 3)) : c;
    }
    return span_of(bytes, len);
}

/* From the node up to its domain: the entries of a descriptor that may meet it. */
static uint32_t draw_entries(const struct trie *trie, uint32_t at, struct dice *dice,
                             struct descriptor_entry *entries, size_t *n_entries,
                             uint8_t bytes[ENTRIES_MAX][2 * UINT16_MAX])
{
    struct descriptor_entry upwards[ENTRIES_MAX];
    size_t n = 0;
    while (trie_at(trie, at)->kind != TRIE_DOMAIN) {
        const struct trie_node *node = trie_at(trie, at);
        const struct trie_node *key = node->kind > TRIE_KEY ? trie_at(trie, node->above) : node;
        MUST(n < ENTRIES_MAX);
        upwards[n] = (struct descriptor_entry){trie_text(key), draw_value(dice, node, bytes[n])};
        n++;
        at = key->above;
    }
    for (size_t i = 0; i < n; i++)
        entries[i] = upwards[n - 1 - i];
    *n_entries = n;
    return at;
}

static void ask(const struct rules *rules, uint32_t node, struct dice *dice)
{
    static uint8_t bytes[ENTRIES_MAX][2 * UINT16_MAX], key[RULES_KEY_MAX];
    struct descriptor_entry entries[ENTRIES_MAX];
    struct descriptor descriptor = {.entries = entries};
    uint32_t domain = draw_entries(&rules->trie, node, dice, entries, &descriptor.n_entries, bytes);
    struct rule_match match;
    struct stint_error error;
    struct answer expected;
    if (descriptor.n_entries == 0)
        return;
    if (throw_dice(dice, 8) == 0)
        descriptor.n_entries = 1 + throw_dice(dice, (uint32_t)descriptor.n_entries);
    struct rules_walk walk;
    rules_walk_begin(&walk, rules, trie_text(trie_at(&rules->trie, domain)));
    int code = rules_match(&walk, &descriptor, key, sizeof(key), &match, &error);
    /* Again, from what the walk remembers. */
    MUST(rules_match(&walk, &descriptor, key, sizeof(key), &match, &error) == code);
    if (!slow_match(rules, domain, &descriptor, &expected))
        return;
    if (code != STINT_OK) {
        MUST(code == STINT_E_RANGE && expected.rule != NULL && expected.key_len > sizeof(key));
        return;
    }
    MUST(match.rule == expected.rule);
    MUST(match.key_len == (expected.rule != NULL ? expected.key_len : 0));
    for (size_t i = 0; i < 8 && match.rule != NULL; i++)
        MUST(key[i] == (uint8_t)(match.rule->id >> (56 - 8 * i)));
}

/* ---- Loading --------------------------------------------------------------------------------- */

static bool is_name_of(const struct rule *rule, const char *name)
{
    const struct rule_store *store = &rule->store;
    return strcmp(store->name, name) == 0 ||
           (store->shadow_name != NULL && strcmp(store->shadow_name, name) == 0);
}

/* No two rules may call their states alike, nor may a rule and its candidate. */
static void check_store(const struct rules *rules, const struct rule *rule)
{
    const struct rule_store *store = &rule->store;
    MUST((store->label != NULL) == (store->name != NULL) && (store->at == 0 || store->label));
    MUST(store->tag <= RULE_TAG_DOMAIN && store->local_for_ns > 0);
    MUST(store->lease == RULE_LEASE_NONE || (store->lease_units > 0 && store->lease_term_ns > 0));
    if (store->name == NULL)
        return;
    size_t allowed = strspn(store->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                         "0123456789-._~/@+=,*%");
    MUST(allowed == strlen(store->name) && allowed <= RULE_STORE_NAME_MAX);
    MUST(store->shadow_name == NULL || strcmp(store->name, store->shadow_name) != 0);
    for (size_t i = 0; i < rule->index; i++)
        if (rules_at(rules, i)->store.name != NULL)
            MUST(!is_name_of(rules_at(rules, i), store->name) &&
                 (!store->shadow_name || !is_name_of(rules_at(rules, i), store->shadow_name)));
}

static void check_rules(const struct rules *rules)
{
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        MUST(rule->index == i && rule->id != 0 && rule->line > 0 && rule->path[0] != '\0');
        MUST(rule->unlimited || (rule->quota.derived.checked && rule->quota.rule == rule->id));
        MUST(!rule->has_shadow || (rule->shadow.derived.checked && rule->shadow.rule != rule->id));
        MUST(rules_has_domain(rules, span_of_text(rule->domain)));
        for (size_t j = 0; j < i; j++)
            MUST(rules_at(rules, j)->id != rule->id);
        check_store(rules, rule);
    }
}

static void check_faults(const struct rules_file *files, size_t n_files,
                         const struct rules_diagnostics *diagnostics)
{
    MUST(diagnostics->n_diagnostics > 0);
    for (size_t i = 0; i < diagnostics->n_diagnostics; i++) {
        const struct rules_fault *fault = &diagnostics->diagnostics[i];
        bool is_file = false;
        for (size_t j = 0; j < n_files; j++)
            is_file = is_file || fault->file == files[j].path;
        MUST(is_file && fault->message[0] != '\0');
        MUST((fault->line == 0) == (fault->column == 0));
    }
}

static void load(const struct rules_file *files, size_t n_files, bool merge, struct dice *dice)
{
    static const char *const stores[] = {"default", "fast"};
    const struct rules_load_options options = {.merge_domains = merge,
                                               .stores = stores,
                                               .n_stores = 1 + throw_dice(dice, 2),
                                               .default_store = merge,
                                               .any_store = throw_dice(dice, 2) == 0};
    struct rules_diagnostics diagnostics, again;
    struct rules *rules = rules_load(files, n_files, &options, &diagnostics);
    struct rules *same = rules_load(files, n_files, &options, &again);
    MUST((rules == NULL) == (same == NULL) && diagnostics.n_diagnostics == again.n_diagnostics);
    if (rules == NULL) {
        check_faults(files, n_files, &diagnostics);
    } else {
        MUST(diagnostics.n_diagnostics == 0 && rules_count(rules) == rules_count(same));
        check_rules(rules);
        uint32_t at = TRIE_NONE;
        for (unsigned i = 0; i < ASKS; i++) {
            at = trie_next(&rules->trie, at);
            if (at != TRIE_NONE)
                ask(rules, at, dice);
        }
    }
    rules_unref(rules);
    rules_unref(same);
    rules_diagnostics_free(&diagnostics);
    rules_diagnostics_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[FILES_MAX] = {"a.yaml", "b.yaml", "c.yaml", "d.yaml"};
    const uint64_t secret[2] = {0, 0};
    struct dice dice = {.seed = siphash13_128(secret, 0, data, size).lo};
    struct rules_file files[FILES_MAX];
    size_t n_files = 0;
    for (const uint8_t *at = data, *end = data + size; at != NULL && n_files < FILES_MAX;) {
        const uint8_t *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;
        size_t len = (size_t)((nul != NULL ? nul : end) - at);
        files[n_files] = (struct rules_file){.path = names[n_files], .text = span_of(at, len)};
        n_files++;
        at = nul != NULL ? nul + 1 : NULL;
    }
    load(files, n_files, false, &dice);
    if (n_files > 1)
        load(files, n_files, true, &dice);
    return 0;
}
