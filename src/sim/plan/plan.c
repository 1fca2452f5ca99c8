/* SPDX-License-Identifier: MIT */
/* Peaks by the exact count, trials by the engine, and a search for where they begin to succeed. */
#include "sim/plan/plan.h"

#include "base/wide_int.h"
#include "sim/input/timestamp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- Traffic --------------------------------------------------------------------------------- */

/* A counting sort by key: it keeps the order of time within each. */

static int allocate(struct traffic *traffic, struct stint_error *error)
{
    size_t n = traffic->n_requests;
    traffic->begins = calloc((size_t)traffic->n_keys + 2, sizeof(*traffic->begins));
    traffic->at_ns = malloc((n + 1) * sizeof(*traffic->at_ns));
    traffic->costs = malloc((n + 1) * sizeof(*traffic->costs));
    if (traffic->begins != NULL && traffic->at_ns != NULL && traffic->costs != NULL)
        return 0;
    return err_set(error, STINT_E_SYSTEM, "out of memory for %zu requests of %lu keys", n,
                   (unsigned long)traffic->n_keys);
}

int traffic_init(struct traffic *traffic, struct event_list *events, uint32_t n_keys,
                 uint64_t epoch_ns, struct stint_error *error)
{
    *traffic = (struct traffic){.n_requests = events->n_entries, .n_keys = n_keys};
    int code = allocate(traffic, error);
    if (code != 0) {
        traffic_deinit(traffic);
        return code;
    }
    /*
     * Counted two elements further up, a key's count becomes its begin, which then moves to its
     * end: the begin of the next.
     */
    size_t *places = traffic->begins + 1;
    for (size_t i = 0; i < events->n_entries; i++) {
        assert(events->entries[i].key < n_keys);
        places[events->entries[i].key + 1]++;
    }
    for (uint32_t key = 1; key < n_keys; key++)
        places[key] += places[key - 1];
    for (size_t i = 0; i < events->n_entries; i++) {
        const struct event_entry *entry = &events->entries[i];
        size_t place = places[entry->key]++;
        assert(entry->at_ns >= epoch_ns);
        traffic->at_ns[place] = entry->at_ns - epoch_ns;
        traffic->costs[place] = entry->cost;
    }
    event_list_deinit(events);
    return 0;
}

void traffic_deinit(struct traffic *traffic)
{
    free(traffic->at_ns);
    free(traffic->costs);
    free(traffic->begins);
    *traffic = (struct traffic){0};
}

/* ---- The plan -------------------------------------------------------------------------------- */

#define BILLION UINT64_C(1000000000)

static int not_a_target(const char *text, struct stint_error *error)
{
    size_t digits = strspn(text, "0123456789.");
    if (digits > 0 && text[digits + strspn(text + digits, " ")] == '%')
        return err_set(error, STINT_E_SYNTAX,
                       "'%s' does not say of what it is a share; expected 'deny at most %s of "
                       "keys' or 'deny at most %s of requests'",
                       text, text, text);
    return err_set(error, STINT_E_SYNTAX,
                   "expected a target such as '%s', 'deny at most 5 keys' or 'deny at most 1 %% of "
                   "requests', found '%s'",
                   PLAN_TARGET_DEFAULT, text);
}

/* Takes the next word off the text: it ends at a blank, or before or after a %. */
static struct span next_word(const char **text)
{
    const char *begin = *text + strspn(*text, " \t");
    size_t len = begin[0] == '%' ? 1 : strcspn(begin, " \t%");
    *text = begin + len;
    return span_of(begin, len);
}

/* Takes a word off the text if it is the next one. */
static bool skip(const char **text, const char *word)
{
    const char *rest = *text;
    if (!span_equals(next_word(&rest), word))
        return false;
    *text = rest;
    return true;
}

static bool read_of(struct plan_target *target, struct span word)
{
    target->of_keys = span_equals(word, "keys") || span_equals(word, "key");
    return target->of_keys || span_equals(word, "requests") || span_equals(word, "request");
}

int plan_target_parse(struct plan_target *target, const char *text, struct stint_error *error)
{
    const char *rest = text;
    struct timestamp number; /* a decimal, in billionths */
    *target = (struct plan_target){0};
    if (skip(&rest, "deny") && !(skip(&rest, "at") && skip(&rest, "most")))
        return not_a_target(text, error);
    if (timestamp_parse_seconds(&number, next_word(&rest), NULL) != 0)
        return not_a_target(text, error);
    target->is_percent = skip(&rest, "%");
    (void)skip(&rest, "of");
    if (!read_of(target, next_word(&rest)) || next_word(&rest).len > 0)
        return not_a_target(text, error);
    if (target->is_percent && number.ns > 100 * BILLION)
        return err_set(error, STINT_E_RANGE, "'%s' is more than all of them", text);
    if (!target->is_percent && number.ns % BILLION != 0)
        return err_set(error, STINT_E_RANGE, "expected a whole number or a percentage, found '%s'",
                       text);
    target->number = target->is_percent ? number.ns : number.ns / BILLION;
    return 0;
}

uint64_t plan_target_most(const struct plan_target *target, uint64_t n_all)
{
    if (!target->is_percent)
        return min_u64(target->number, n_all);
    return mul_div(n_all, target->number, 100 * BILLION);
}

#define ASK_EVERY 4096 /* requests between two calls of goes_on */

int plan_init(struct plan *plan, const struct traffic *traffic, struct stint_error *error)
{
    *plan = (struct plan){.traffic = traffic};
    plan->peaks = malloc(((size_t)traffic->n_keys + 1) * sizeof(*plan->peaks));
    if (plan->peaks == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for %lu keys",
                       (unsigned long)traffic->n_keys);
    return 0;
}

void plan_deinit(struct plan *plan)
{
    free(plan->peaks);
    *plan = (struct plan){0};
}

static bool is_stopped(const struct plan *plan)
{
    return plan->goes_on != NULL && !plan->goes_on(plan->arg);
}

/* ---- Peaks ----------------------------------------------------------------------------------- */

static int count_peak(struct exact *exact, const struct traffic *traffic, uint32_t key,
                      struct plan_peak *peak, struct stint_error *error)
{
    exact_forget(exact, 0);
    exact->most[0] = (struct exact_most){0};
    for (size_t i = traffic->begins[key]; i < traffic->begins[key + 1]; i++) {
        struct exact_run run = {traffic->at_ns[i], traffic->costs[i]};
        int code = exact_add(exact, 0, run, error);
        if (code != 0)
            return code;
    }
    *peak = (struct plan_peak){exact->most[0].units, key};
    return 0;
}

static int compare_peaks(const void *a, const void *b)
{
    const struct plan_peak *left = a, *right = b;
    if (left->units != right->units)
        return left->units > right->units ? -1 : 1;
    return left->key < right->key ? -1 : left->key > right->key;
}

int plan_set_period(struct plan *plan, uint64_t period_ns, struct stint_error *error)
{
    struct exact exact;
    int code = 0;
    plan->period_ns = period_ns;
    exact_init(&exact, &period_ns, 1);
    for (uint32_t key = 0; code == 0 && key < plan->traffic->n_keys; key++) {
        code = count_peak(&exact, plan->traffic, key, &plan->peaks[key], error);
        if (code == 0 && key % ASK_EVERY == 0 && is_stopped(plan))
            code = PLAN_STOPPED;
    }
    exact_deinit(&exact);
    if (code == 0)
        qsort(plan->peaks, plan->traffic->n_keys, sizeof(*plan->peaks), compare_peaks);
    return code;
}

/* ---- Trials ---------------------------------------------------------------------------------- */

/*
 * The least peak at which the algorithm of the quota may deny something; see docs/algorithms.md.
 *
 * window denies only if the units of W + O, one window and a part of the one before, are more than
 * N - q + 1. gcra never denies if in any W at most its burst is used, or at most what comes back
 * meanwhile: almost N, since its interval is rounded up, by a thousandth at most.
 */
static uint64_t least_peak_denied(const struct stint_quota *quota)
{
    uint64_t limit = quota->limit, burst = quota->burst;
    switch (quota->algorithm) {
    case STINT_WINDOW:
        return (limit + 1 - quota->derived.bunch) / 2 + 1;
    case STINT_GCRA:
        return min_u64(burst + 1, limit - limit / 1000);
    default:
        return limit + 1;
    }
}

struct trial {
    const struct plan *plan;
    const struct stint_quota *quota;
    void *state;
};

/* Requests of the key that are denied; counted up to `enough`. */
static uint64_t try_key(const struct trial *trial, uint32_t key, uint64_t enough)
{
    const struct traffic *traffic = trial->plan->traffic;
    size_t begin = traffic->begins[key], end = traffic->begins[key + 1];
    uint64_t denied = 0;
    stint_state_init(trial->quota, trial->state, traffic->at_ns[begin]);
    for (size_t i = begin; i < end && denied < enough; i++) {
        struct stint_ask ask = {.now_ns = traffic->at_ns[i], .cost = traffic->costs[i]};
        denied += stint_state_ask(trial->quota, trial->state, &ask).outcome != STINT_ALLOW;
    }
    return denied;
}

/* Calls `visit` for the keys that the quota may deny something, until it returns false. */
static int each_key(const struct plan *plan, const struct stint_quota *quota,
                    bool (*visit)(void *arg, const struct trial *trial, uint32_t key), void *arg,
                    struct stint_error *error)
{
    const struct traffic *traffic = plan->traffic;
    uint64_t least = least_peak_denied(quota), asked = 0;
    size_t size = (stint_state_size(quota) + 15) / 16 * 16;
    const struct trial trial = {plan, quota, aligned_alloc(16, size)};
    assert(quota->period_ns == plan->period_ns);
    if (trial.state == NULL)
        return err_set(error, STINT_E_SYSTEM, "out of memory for a state of %zu bytes", size);
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < traffic->n_keys && plan->peaks[i].units >= least; i++) {
        uint32_t key = plan->peaks[i].key;
        if (!visit(arg, &trial, key))
            break;
        asked += traffic->begins[key + 1] - traffic->begins[key];
        if (asked >= ASK_EVERY && is_stopped(plan))
            code = PLAN_STOPPED;
        asked %= ASK_EVERY;
    }
    free(trial.state);
    return code;
}

struct counting {
    struct plan_touch *touch;
    const struct plan_sees *sees;
};

static bool count_denied(void *arg, const struct trial *trial, uint32_t key)
{
    const struct counting *counting = arg;
    uint64_t denied = try_key(trial, key, UINT64_MAX);
    counting->touch->keys += denied > 0;
    counting->touch->requests += denied;
    if (denied > 0 && counting->sees != NULL)
        counting->sees->denied(counting->sees->arg, key, denied);
    return true;
}

int plan_try(const struct plan *plan, const struct stint_quota *quota, struct plan_touch *touch,
             const struct plan_sees *sees, struct stint_error *error)
{
    struct counting counting = {touch, sees};
    *touch = (struct plan_touch){0};
    return each_key(plan, quota, count_denied, &counting, error);
}

/* ---- The search ------------------------------------------------------------------------------ */

struct search {
    const struct plan *plan;
    uint64_t most; /* keys touched, or requests denied */
    bool of_keys;
    enum stint_algorithm algorithm;
    uint32_t limit;                 /* of gcra, whose burst is searched for; else 0 */
    struct plan_proposal *proposal; /* the least one so far that meets the target */
};

struct hits {
    const struct search *search;
    uint64_t n;
};

/* A key is touched by its first denial, and a target missed by the first hit too many. */
static bool count_hits(void *arg, const struct trial *trial, uint32_t key)
{
    struct hits *hits = arg;
    uint64_t enough = hits->search->of_keys ? 1 : hits->search->most - hits->n + 1;
    hits->n += try_key(trial, key, enough);
    return hits->n <= hits->search->most;
}

/* Tries one limit, or for gcra one burst. */
static int try_units(const struct search *search, uint64_t units, bool *met,
                     struct stint_error *error)
{
    struct stint_error why;
    struct hits hits = {search, 0};
    bool of_burst = search->limit > 0;
    struct stint_quota quota = {
        .algorithm = (uint8_t)search->algorithm,
        .period_ns = search->plan->period_ns,
        .limit = of_burst ? search->limit : (uint32_t)units,
        .burst = of_burst ? (uint32_t)units : 0,
    };
    *met = false;
    if (stint_quota_check(&quota, &why) != 0) {
        search->proposal->found = PLAN_REFUSED;
        memcpy(search->proposal->why, why.message, sizeof(why.message));
        return 0;
    }
    int code = each_key(search->plan, &quota, count_hits, &hits, error);
    *met = code == 0 && hits.n <= search->most;
    if (*met)
        *search->proposal = (struct plan_proposal){.found = PLAN_FOUND, .quota = quota};
    return code;
}

/* Between one that misses, or none, and one that meets the target. */
static int bisect(const struct search *search, uint64_t misses, uint64_t met_at,
                  struct stint_error *error)
{
    while (met_at - misses > 1) {
        uint64_t middle = misses + (met_at - misses) / 2;
        bool met;
        int code = try_units(search, middle, &met, error);
        if (code != 0)
            return code;
        if (met)
            met_at = middle;
        else
            misses = middle;
    }
    return 0;
}

/* `misses` is known to, or 0, which is not tried; `first` is the estimate of where it begins. */
static int search_from(const struct search *search, uint64_t misses, uint64_t first,
                       struct stint_error *error)
{
    uint64_t units = first, step = 1;
    for (;;) {
        bool met;
        int code = try_units(search, units, &met, error);
        if (code != 0 || search->proposal->found == PLAN_REFUSED)
            return code;
        if (met)
            return bisect(search, misses, units, error);
        if (units == UINT32_MAX)
            return 0;
        misses = units;
        units = min_u64(units + step, UINT32_MAX);
        step *= 2;
    }
}

static int least_limit(const struct search *search, struct stint_error *error)
{
    const struct plan *plan = search->plan;
    uint32_t n_keys = plan->traffic->n_keys;
    /* An exact limit above the peak of the first key to spare touches no other key. */
    uint64_t first = search->of_keys ? search->most : 0;
    uint64_t exact = max_u64(first < n_keys ? plan->peaks[first].units : 0, 1);
    return exact > UINT32_MAX ? 0
                              : search_from(search, search->of_keys ? exact - 1 : 0, exact, error);
}

int plan_least(const struct plan *plan, enum stint_algorithm algorithm,
               const struct plan_target *target, struct plan_proposal *proposal,
               struct stint_error *error)
{
    const struct traffic *traffic = plan->traffic;
    struct search search = {
        .plan = plan,
        .most = plan_target_most(target, target->of_keys ? traffic->n_keys : traffic->n_requests),
        .of_keys = target->of_keys,
        .algorithm = algorithm == STINT_GCRA ? STINT_WINDOW : algorithm,
        .proposal = proposal,
    };
    *proposal = (struct plan_proposal){.found = PLAN_NO_LIMIT};
    int code = least_limit(&search, error);
    if (code == 0 && proposal->found == PLAN_FOUND && algorithm == STINT_GCRA) {
        search.algorithm = STINT_GCRA;
        search.limit = proposal->quota.limit;
        proposal->found = PLAN_NO_LIMIT;
        code = search_from(&search, 0, search.limit, error);
    }
    if (code != 0 || proposal->found != PLAN_FOUND)
        return code;
    return plan_try(plan, &proposal->quota, &proposal->touch, NULL, error);
}
