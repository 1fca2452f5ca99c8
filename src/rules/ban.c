/* SPDX-License-Identifier: MIT */
/*
 * The word of a banned key:
 *
 *   a time, in units of 64 ns, rounded down; 6 bits: how many bans in turn
 *
 * The key is banned until the time minus the length of that ban; after its end the ban is
 * remembered for the same length. A further ban within that time is the next in turn. As the time
 * is rounded down, a ban of 1 s is never reported as 1,001 ms. Six bits suffice: the longest ban is
 * 2^35 times the shortest.
 */
#include "rules/ban.h"

#include "base/wide_int.h"
#include "table/cooldown.h"

#define BAN_TWEAK UINT64_C(0x6e6162) /* keys of bans are hashed apart from those of rules */
#define LOW_MASK UINT64_C(63)

/* The length of the n-th ban in turn. */
static uint64_t length_ns(const struct rule_ban *ban, uint64_t n)
{
    uint64_t length = ban->for_ns;
    for (uint64_t i = 1; i < n && ban->factor > 1 && length < ban->max_ns; i++)
        length = length > ban->max_ns / ban->factor ? ban->max_ns : length * ban->factor;
    return length;
}

/* Where denials are counted: up to `after` - 1 of them cause no ban. */
static int denials_quota(const struct rule_ban *ban, uint64_t rule_id, struct stint_quota *quota,
                         struct stint_error *error)
{
    /* If new keys waited in a full table, the first denial would ban the key. */
    *quota = (struct stint_quota){.algorithm = STINT_WINDOW,
                                  .limit = ban->after - 1,
                                  .period_ns = ban->within_ns,
                                  .rule = rule_id ^ BAN_TWEAK,
                                  .when_full = STINT_FULL_ALLOW};
    return stint_quota_check(quota, error);
}

int ban_check(const struct rule_ban *ban, struct stint_error *error)
{
    struct stint_quota quota;
    if (ban->after < 1 || ban->after > BAN_AFTER_MAX)
        return err_set(error, STINT_E_RANGE, "`after` is a number of denials from 1 to %d",
                       BAN_AFTER_MAX);
    if (ban->for_ns < NS_PER_MS || ban->for_ns > NS_PER_YEAR)
        return err_set(error, STINT_E_RANGE, "a ban lasts from 1 ms to 365 days");
    if (ban->max_ns < ban->for_ns || ban->max_ns > NS_PER_YEAR)
        return err_set(error, STINT_E_RANGE,
                       "`max` is from the length of the first ban to 365 days");
    if (ban->factor < 1 || ban->factor > 1000)
        return err_set(error, STINT_E_RANGE, "`factor` is a whole number from 1 to 1000");
    return denials_quota(ban, 1, &quota, error);
}

int ban_accepted(struct stint_table *table, const struct rule *rule, struct stint_error *error)
{
    struct stint_quota quota;
    int code = denials_quota(&rule->ban, rule->id, &quota, error);
    return code != 0 ? code : table_keeps(table, &quota, error);
}

static struct hash128 hash_of(const struct stint_table *table, const struct rule *rule,
                              struct span key)
{
    return table_hash_under(table, rule->id ^ BAN_TWEAK, key.ptr, key.len);
}

static uint64_t ends_ns(const struct rule_ban *ban, uint64_t word)
{
    return word == 0 ? 0 : sub_floor(word & ~LOW_MASK, length_ns(ban, word & LOW_MASK));
}

uint64_t ban_until(struct stint_table *table, const struct rule *rule, struct span key,
                   uint64_t now_ns)
{
    if (!cooldown_any(table, now_ns))
        return 0;
    uint64_t until_ns =
        ends_ns(&rule->ban, cooldown_read(table, hash_of(table, rule, key), now_ns));
    return until_ns > now_ns ? until_ns : 0;
}

static struct ban_made put(struct stint_table *table, const struct rule *rule, struct span key,
                           uint64_t now_ns)
{
    struct hash128 hash = hash_of(table, rule, key);
    for (;;) {
        uint64_t word = cooldown_read(table, hash, now_ns);
        uint64_t until_ns = ends_ns(&rule->ban, word);
        if (until_ns > now_ns)
            return (struct ban_made){.until_ns = until_ns}; /* another thread's denial was first */
        uint64_t n = min_u64((word & LOW_MASK) + 1, LOW_MASK);
        uint64_t length = length_ns(&rule->ban, n);
        until_ns = now_ns + length;
        enum cooldown_swap done =
            cooldown_swap(table, hash, word, ((until_ns + length) & ~LOW_MASK) | n, now_ns);
        if (done != COOLDOWN_CHANGED)
            return (struct ban_made){.until_ns = done == COOLDOWN_SWAPPED ? until_ns : 0,
                                     .is_lost = done == COOLDOWN_FULL};
    }
}

struct ban_made ban_count(struct stint_table *table, const struct rule *rule, struct span key,
                          uint64_t now_ns)
{
    struct stint_quota quota;
    if (denials_quota(&rule->ban, rule->id, &quota, NULL) != 0)
        return (struct ban_made){.is_lost = true};
    if (stint_take(table, &quota, key.ptr, key.len, 1, now_ns).outcome == STINT_ALLOW)
        return (struct ban_made){.until_ns = 0};
    struct ban_made made = put(table, rule, key, table_effective_now(table, now_ns));
    /* The next ban takes as many denials as this one. */
    if (made.until_ns != 0)
        table_forget(table, &quota, table_hash(table, &quota, key.ptr, key.len));
    return made;
}

void ban_lift(struct stint_table *table, const struct rule *rule, struct span key, uint64_t now_ns)
{
    struct stint_quota quota;
    struct hash128 hash = hash_of(table, rule, key);
    while (cooldown_swap(table, hash, cooldown_read(table, hash, now_ns), 0, now_ns) ==
           COOLDOWN_CHANGED) {
    }
    if (denials_quota(&rule->ban, rule->id, &quota, NULL) == 0)
        table_forget(table, &quota, table_hash(table, &quota, key.ptr, key.len));
}
