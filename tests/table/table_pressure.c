/* SPDX-License-Identifier: MIT */
/*
 * Tables that are far too small for their keys: strict quotas stay strict whatever is asked of
 * them, a denied key is not freed by a flood, each policy does what it says and counts it, and dead
 * states are reused without loss, but not before everybody's clock has seen them die.
 * FIELD B14, B15, B16.
 */
#include "race/crew.h"

#include "base/splitmix.h"

#define SECOND_NS UINT64_C(1000000000)
#define MS_NS UINT64_C(1000000)
#define START_NS (UINT64_C(1000) * SECOND_NS)
#define KEYS 300u
#define USES_MAX 400000u

static uint64_t draw(uint64_t *random)
{
    return splitmix_next(random) >> 24;
}

/* ---- Strict under pressure ------------------------------------------------------------------- */

/* Every unit that was granted, as (key, time); what was given back is taken out again. */
struct use {
    uint64_t at_ns;
    uint32_t key, units;
};

static struct use uses[USES_MAX];
static uint32_t n_uses;
static uint64_t forgotten_ns[KEYS]; /* uses before a reset do not count against the key any more */

static uint64_t used_in_window(uint32_t key, uint64_t end_ns, uint64_t period_ns)
{
    uint64_t units = 0;
    for (uint32_t i = n_uses; i-- > 0 && uses[i].at_ns + period_ns > end_ns;)
        if (uses[i].key == key && uses[i].at_ns >= forgotten_ns[key])
            units += uses[i].units;
    return units;
}

static void note_use(const struct stint_quota *quota, uint32_t key, uint64_t at_ns, uint32_t units,
                     const char *spec)
{
    if (n_uses == USES_MAX || units == 0)
        return;
    uses[n_uses++] = (struct use){at_ns, key, units};
    uint64_t used = used_in_window(key, at_ns, quota->period_ns);
    crew_check(used <= quota->limit, "%s: key %u used %llu of %u in one window", spec, key,
               (unsigned long long)used, quota->limit);
}

static void ask_something(struct stint_table *table, const struct stint_quota *quota,
                          uint64_t now_ns, uint64_t *random, const char *spec)
{
    uint32_t key = (uint32_t)(draw(random) % KEYS) * (uint32_t)(draw(random) % 2);
    uint32_t cost = 1 + (uint32_t)(draw(random) % 3);
    struct stint_item item = {quota, &key, sizeof(key), cost};
    struct stint_decision decision;
    switch (draw(random) % 16) {
    case 0:
        decision = stint_take_upto(table, &item, 1, now_ns);
        note_use(quota, key, now_ns, decision.granted, spec);
        break;
    case 1: /* taken and given back at once: whatever comes back was not used */
        decision = stint_take(table, quota, &key, sizeof(key), cost, now_ns);
        if (decision.outcome == STINT_ALLOW)
            note_use(quota, key, now_ns,
                     cost - stint_refund(table, &item, 1, now_ns, now_ns).granted, spec);
        break;
    case 2: {
        struct stint_ticket ticket;
        decision = stint_book(table, &item, 1, 0, now_ns, &ticket);
        if (decision.outcome == STINT_ALLOW)
            note_use(quota, key, now_ns, cost, spec);
        break;
    }
    case 3:
        if (draw(random) % 8 == 0) {
            stint_reset(table, quota, &key, sizeof(key), now_ns);
            forgotten_ns[key] = now_ns + 1; /* its old uses, and those of this instant */
        }
        break;
    default:
        decision = stint_take(table, quota, &key, sizeof(key), cost, now_ns);
        if (decision.outcome == STINT_ALLOW)
            note_use(quota, key, now_ns, cost, spec);
    }
}

static void strict_under_pressure(const char *spec, uint64_t keys)
{
    struct stint_quota quota;
    struct stint_table_options options = {.keys = keys,
                                          .keys16 = keys,
                                          .keys_wide = keys,
                                          .wide_size = 512,
                                          .skew_max_ns = MS_NS,
                                          .hash_key = {3, 5},
                                          .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table = crew_open(&options);
    uint64_t random = keys, now_ns = START_NS;
    n_uses = 0;
    memset(forgotten_ns, 0, sizeof(forgotten_ns));
    crew_parse(&quota, spec);
    for (unsigned i = 0; i < 30000; i++) {
        now_ns += draw(&random) % (20 * MS_NS);
        ask_something(table, &quota, now_ns, &random, spec);
    }
    struct stint_table_info info;
    stint_table_info(table, now_ns, &info);
    uint64_t refused =
        quota.when_full == STINT_FULL_DENY ? info.full_denied : info.evictions_inherit;
    crew_check(refused > 0 || keys > 32, "%s: the table was never full", spec);
    crew_check(info.evictions_lossless > 0, "%s: no dead state was reused", spec);
    crew_check(info.evictions_evict == 0, "%s: a live state was given up", spec);
    crew_check(n_uses > 1000, "%s: only %u uses", spec, n_uses);
    stint_table_close(table);
}

/* ---- Policies -------------------------------------------------------------------------------- */

static struct stint_table *tiny_table(void)
{
    struct stint_table_options options = {.keys = 6,
                                          .keys16 = 6,
                                          .keys_wide = 6,
                                          .wide_size = 512,
                                          .hash_key = {7, 9},
                                          .clock = STINT_CLOCK_VIRTUAL};
    return crew_open(&options);
}

static uint32_t admit_flood(struct stint_table *table, const struct stint_quota *quota,
                            uint32_t first, uint32_t n, uint64_t now_ns)
{
    uint32_t admitted = 0;
    for (uint32_t key = first; key < first + n; key++)
        admitted += stint_take(table, quota, &key, sizeof(key), 1, now_ns).outcome == STINT_ALLOW;
    return admitted;
}

/* A key that was denied before a flood of 10,000 new ones is denied after it. */
static void flood_frees_nobody(const char *spec)
{
    struct stint_table *table = tiny_table();
    struct stint_quota quota;
    crew_parse(&quota, spec);
    uint32_t denied = 1, admitted = 0;
    while (stint_take(table, &quota, &denied, sizeof(denied), 1, START_NS).outcome == STINT_ALLOW)
        crew_check(++admitted <= quota.limit, "%s: no end", spec);
    admit_flood(table, &quota, 100, 10000, START_NS + 1);
    crew_check(stint_take(table, &quota, &denied, sizeof(denied), 1, START_NS + 2).outcome ==
                   STINT_DENY,
               "%s: a flood freed a denied key", spec);
    stint_table_close(table);
}

static void policies_do_what_they_say(void)
{
    static const struct {
        const char *spec;
        uint32_t admitted_min, admitted_max;
        size_t counter;
    } cases[] = {
        {"gcra 5/1h when_full=inherit", 8, 8, offsetof(struct stint_table_info, evictions_inherit)},
        {"gcra 5/1h when_full=deny", 8, 8, offsetof(struct stint_table_info, full_denied)},
        {"gcra 5/1h when_full=allow", 1000, 1000, offsetof(struct stint_table_info, full_allowed)},
        {"gcra 5/1h when_full=evict", 1000, 1000,
         offsetof(struct stint_table_info, evictions_evict)},
        {"window 5/1h when_full=inherit", 8, 8,
         offsetof(struct stint_table_info, evictions_inherit)},
        {"window 5/1h when_full=deny", 8, 8, offsetof(struct stint_table_info, full_denied)},
        {"window 5/1h when_full=allow", 1000, 1000,
         offsetof(struct stint_table_info, full_allowed)},
        {"window 5/1h when_full=evict", 1000, 1000,
         offsetof(struct stint_table_info, evictions_evict)},
        {"log 5/1h when_full=deny", 8, 8, offsetof(struct stint_table_info, full_denied)},
        {"log 5/1h when_full=evict", 1000, 1000,
         offsetof(struct stint_table_info, evictions_evict)},
        {"buckets 5/1h time_slack=5m when_full=evict", 1000, 1000,
         offsetof(struct stint_table_info, evictions_evict)},
        {"concurrency 5 lease=1h when_full=evict", 8, 8,
         offsetof(struct stint_table_info, evictions_inherit)},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct stint_table *table = tiny_table();
        struct stint_quota quota;
        struct stint_table_info info;
        crew_parse(&quota, cases[i].spec);
        uint32_t admitted = admit_flood(table, &quota, 0, 1000, START_NS);
        crew_check(admitted >= cases[i].admitted_min && admitted <= cases[i].admitted_max,
                   "%s: admitted %u", cases[i].spec, admitted);
        stint_table_info(table, START_NS, &info);
        uint64_t counter;
        memcpy(&counter, (const char *)&info + cases[i].counter, sizeof(counter));
        crew_check(counter == 992, "%s: counted %llu of 992", cases[i].spec,
                   (unsigned long long)counter);
        stint_table_close(table);
    }
}

/* A new key is told when the first place comes free, and finds it free then. */
static void wait_for_a_place_is_exact(void)
{
    struct stint_table *table = tiny_table();
    struct stint_quota quota;
    crew_parse(&quota, "log 5/1h");
    admit_flood(table, &quota, 0, 8, START_NS);
    uint32_t late = 999;
    struct stint_decision told = stint_take(table, &quota, &late, sizeof(late), 1, START_NS);
    crew_check(told.outcome == STINT_DENY && told.stored == 0, "there was a place");
    uint64_t then_ns = START_NS + told.retry_after_ns;
    crew_check(stint_take(table, &quota, &late, sizeof(late), 1, then_ns - 1).outcome == STINT_DENY,
               "allowed before its time");
    crew_check(stint_take(table, &quota, &late, sizeof(late), 1, then_ns).outcome == STINT_ALLOW,
               "denied at its time");
    stint_table_close(table);
}

/*
 * A state is reused only when nobody whose clock is behind can ask for it any more; the mark, too,
 * may be a millisecond behind. Else the key would be new to that one.
 */
static void reuse_waits_for_slow_clocks(const char *spec)
{
    struct stint_table_options options = {.keys = 1,
                                          .keys16 = 1,
                                          .keys_wide = 1,
                                          .wide_size = 512,
                                          .skew_max_ns = 1,
                                          .clock = STINT_CLOCK_VIRTUAL};
    struct stint_table *table = crew_open(&options);
    struct stint_quota quota;
    crew_parse(&quota, spec);
    struct stint_entry entry;
    uint32_t key = 5000;
    stint_take(table, &quota, &key, sizeof(key), 1, START_NS);
    crew_check(stint_find(table, &quota, &key, sizeof(key), START_NS, &entry) == 0, "not found");
    uint64_t expires_ns = entry.expires_at_ns, behind_ns = expires_ns - MS_NS / 2;
    /* The mark is here, and stays for a millisecond. */
    stint_take(table, &quota, &key, sizeof(key), 0, behind_ns);
    admit_flood(table, &quota, 0, 100, expires_ns + 1);
    struct stint_decision decision = stint_take(table, &quota, &key, sizeof(key), 1, behind_ns);
    crew_check(decision.outcome == STINT_DENY, "%s: a slow clock minted a unit", spec);
    stint_table_close(table);
}

int main(void)
{
    static const char *const strict[] = {
        "window 5/2s",
        "window 5/2s resolution=12",
        "log 5/2s",
        "buckets 5/2s time_slack=200ms",
        "window 5/2s when_full=deny",
        "log 5/2s when_full=deny",
    };
    for (size_t i = 0; i < sizeof(strict) / sizeof(strict[0]); i++) {
        strict_under_pressure(strict[i], 8);
        strict_under_pressure(strict[i], 20);
        strict_under_pressure(strict[i], 64);
    }
    flood_frees_nobody("gcra 5/1h");
    flood_frees_nobody("gcra 5/1h when_full=evict");
    flood_frees_nobody("fixed_window 5/1h");
    flood_frees_nobody("sliding_counter 5/1h");
    flood_frees_nobody("window 5/1h");
    flood_frees_nobody("window 5/1h resolution=12 when_full=evict");
    flood_frees_nobody("log 5/1h");
    flood_frees_nobody("log 5/1h when_full=evict");
    flood_frees_nobody("concurrency 5 lease=1h");
    policies_do_what_they_say();
    wait_for_a_place_is_exact();
    reuse_waits_for_slow_clocks("log 1/1s");
    reuse_waits_for_slow_clocks("window 1/1s");
    reuse_waits_for_slow_clocks("window 1/1s resolution=12");
    return crew_report();
}
