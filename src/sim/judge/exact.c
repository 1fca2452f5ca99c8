/* SPDX-License-Identifier: MIT */
/*
 * Two pointers over the runs of each key: one appends, one per period drops what has left the
 * window. A window holds most when it ends at a time of use, so only those are checked.
 */
#include "sim/judge/exact.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_FIRST 1024u
#define RUNS_FIRST 4u
#define SELDOM __attribute__((noinline)) /* not inlined: rarely called */

void exact_init(struct exact *exact, const uint64_t *periods_ns, size_t n_periods)
{
    assert(n_periods > 0 && n_periods <= STINT_ITEMS_MAX);
    memset(exact, 0, sizeof(*exact));
    exact->n_periods = n_periods;
    for (size_t i = 0; i < n_periods; i++) {
        exact->periods_ns[i] = periods_ns[i];
        if (periods_ns[i] > periods_ns[exact->longest])
            exact->longest = i;
    }
}

void exact_deinit(struct exact *exact)
{
    for (uint32_t key = 0; key < exact->keys_size; key++)
        free(exact->keys[key].runs);
    free(exact->keys);
    free(exact->windows);
    memset(exact, 0, sizeof(*exact));
}

static int no_memory(struct stint_error *error)
{
    return err_set(error, STINT_E_SYSTEM, "out of memory for the exact count");
}

/* Accounts for more memory, unless it would pass the maximum. */
static int claim(struct exact *exact, uint64_t bytes, struct stint_error *error)
{
    if (exact->bytes_max > 0 && bytes > exact->bytes_max - exact->bytes)
        return err_set(error, STINT_E_FULL, "the exact count would need more than %llu bytes",
                       (unsigned long long)exact->bytes_max);
    exact->bytes += bytes;
    return 0;
}

SELDOM static int grow_keys(struct exact *exact, uint32_t key, struct stint_error *error)
{
    size_t old = exact->keys_size, size = old == 0 ? KEYS_FIRST : old;
    while (size <= key)
        size *= 2;
    size_t window_set = exact->n_periods * sizeof(*exact->windows);
    int code = claim(exact, (size - old) * (sizeof(struct exact_key) + window_set), error);
    if (code != 0)
        return code;
    struct exact_key *keys = realloc(exact->keys, size * sizeof(*keys));
    if (keys == NULL)
        return no_memory(error);
    exact->keys = keys;
    struct exact_window *windows = realloc(exact->windows, size * window_set);
    if (windows == NULL)
        return no_memory(error);
    exact->windows = windows;
    memset(keys + old, 0, (size - old) * sizeof(*keys));
    memset(windows + old * exact->n_periods, 0, (size - old) * window_set);
    exact->keys_size = (uint32_t)size;
    return 0;
}

static uint64_t first_run(const struct exact_key *key)
{
    return key->end - key->n_runs;
}

static struct exact_run *run_at(const struct exact_key *key, uint64_t number)
{
    return &key->runs[number & (key->size - 1)];
}

SELDOM static int grow_runs(struct exact *exact, struct exact_key *key, struct stint_error *error)
{
    uint32_t size = key->size == 0 ? RUNS_FIRST : key->size * 2;
    int code = claim(exact, (uint64_t)(size - key->size) * sizeof(struct exact_run), error);
    if (code != 0)
        return code;
    struct exact_run *runs = size == 0 ? NULL : malloc(size * sizeof(*runs));
    if (runs == NULL)
        return no_memory(error);
    for (uint64_t number = first_run(key); number < key->end; number++)
        runs[number & (size - 1)] = *run_at(key, number);
    free(key->runs);
    key->runs = runs;
    key->size = size;
    return 0;
}

static int append(struct exact *exact, struct exact_key *key, struct exact_run run,
                  struct stint_error *error)
{
    if (key->n_runs > 0 && run_at(key, key->end - 1)->at_ns == run.at_ns) {
        run_at(key, key->end - 1)->units += run.units;
        return 0;
    }
    if (key->n_runs == key->size) {
        int code = grow_runs(exact, key, error);
        if (code != 0)
            return code;
    }
    *run_at(key, key->end++) = run;
    key->n_runs++;
    return 0;
}

static struct exact_window *windows_of(const struct exact *exact, uint32_t key)
{
    return &exact->windows[(size_t)key * exact->n_periods];
}

/* The window was moved to a later time than this: some units come back into the windows. */
SELDOM static void go_back(const struct exact *exact, const struct exact_key *key,
                           struct exact_window *windows, uint64_t now_ns)
{
    for (size_t i = 0; i < exact->n_periods; i++) {
        struct exact_window *window = &windows[i];
        while (window->first > first_run(key) &&
               now_ns - run_at(key, window->first - 1)->at_ns < exact->periods_ns[i])
            window->units += run_at(key, --window->first)->units;
    }
}

/* No window of the key ends later than now after this; each is moved when it is used. */
static inline void set_now(const struct exact *exact, struct exact_key *key,
                           struct exact_window *windows, uint64_t now_ns)
{
    if (now_ns < key->now_ns)
        go_back(exact, key, windows, now_ns);
    key->now_ns = now_ns;
}

/* A unit used at u has left the window (t-W, t] once t >= u + W. */
static inline void age(const struct exact_key *key, struct exact_window *window, uint64_t period_ns)
{
    while (window->first < key->end && key->now_ns - run_at(key, window->first)->at_ns >= period_ns)
        window->units -= run_at(key, window->first++)->units;
}

static int add(struct exact *exact, uint32_t key_number, struct exact_run run, bool is_judged,
               struct stint_error *error)
{
    int code = key_number < exact->keys_size ? 0 : grow_keys(exact, key_number, error);
    if (code != 0)
        return code;
    struct exact_key *key = &exact->keys[key_number];
    struct exact_window *windows = windows_of(exact, key_number);
    assert(key->n_runs == 0 || run_at(key, key->end - 1)->at_ns <= run.at_ns);
    set_now(exact, key, windows, run.at_ns);
    for (size_t i = 0; i < exact->n_periods; i++) {
        age(key, &windows[i], exact->periods_ns[i]);
        windows[i].units += run.units;
        if (is_judged && windows[i].units > exact->most[i].units)
            exact->most[i] = (struct exact_most){windows[i].units, run.at_ns, key_number};
    }
    key->n_runs = (uint32_t)(key->end - windows[exact->longest].first);
    return append(exact, key, run, error);
}

int exact_add(struct exact *exact, uint32_t key, struct exact_run run, struct stint_error *error)
{
    return add(exact, key, run, true, error);
}

int exact_add_unjudged(struct exact *exact, uint32_t key, struct exact_run run,
                       struct stint_error *error)
{
    return add(exact, key, run, false, error);
}

/* The run of this time, or the first later one; key->end if there is none. */
static uint64_t find_run(const struct exact_key *key, uint64_t at_ns)
{
    uint64_t low = first_run(key), high = key->end;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        if (run_at(key, mid)->at_ns < at_ns)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void exact_take_back(struct exact *exact, uint32_t key_number, struct exact_run run)
{
    if (key_number >= exact->keys_size)
        return;
    struct exact_key *key = &exact->keys[key_number];
    struct exact_window *windows = windows_of(exact, key_number);
    uint64_t number = find_run(key, run.at_ns);
    if (number == key->end || run_at(key, number)->at_ns != run.at_ns)
        return; /* it has left the longest window */
    assert(run_at(key, number)->units >= run.units);
    run_at(key, number)->units -= run.units;
    for (size_t i = 0; i < exact->n_periods; i++)
        if (number >= windows[i].first)
            windows[i].units -= run.units;
}

uint64_t exact_units(struct exact *exact, uint32_t key_number, size_t period, uint64_t now_ns)
{
    if (key_number >= exact->keys_size)
        return 0;
    struct exact_key *key = &exact->keys[key_number];
    struct exact_window *windows = windows_of(exact, key_number);
    set_now(exact, key, windows, now_ns);
    age(key, &windows[period], exact->periods_ns[period]);
    return windows[period].units;
}

void exact_forget(struct exact *exact, uint32_t key_number)
{
    if (key_number >= exact->keys_size)
        return;
    struct exact_key *key = &exact->keys[key_number];
    struct exact_window *windows = windows_of(exact, key_number);
    key->n_runs = 0;
    for (size_t i = 0; i < exact->n_periods; i++)
        windows[i] = (struct exact_window){.first = key->end};
}
