/* SPDX-License-Identifier: MIT */
/* Counts, and sums up a key when it is over. */
#include "sim/judge/tally.h"

#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WARM_PERIODS 2 /* no state remembers longer */

double tally_fairness(const struct tally_shares *shares)
{
    return shares->squares > 0 ? shares->sum * shares->sum / (shares->n * shares->squares) : 1.0;
}

double tally_utilisation(const struct tally_quota *quota)
{
    return quota->usable_units > 0 ? (double)quota->used_units / (double)quota->usable_units : -1;
}

double tally_share_of_limit(const struct tally *tally, size_t i)
{
    const struct tally_quota *quota = &tally->quotas[i];
    double units = quota->weighed_limit * (double)tally->keys;
    return units > 0 ? quota->weighed_units / units : -1;
}

bool tally_is_broken(const struct tally *tally)
{
    for (size_t i = 0; i < tally->n_quotas; i++)
        if (tally->quotas[i].bound_broken)
            return true;
    return tally->unjustified > 0 || tally->waits_too_long > 0 || tally->waits_too_short > 0;
}

int tally_places_init(struct tally_places *places, const struct workload *workload,
                      const struct stint_quota *quotas, size_t n_quotas, struct stint_error *error)
{
    size_t n = workload_places(workload);
    uint32_t n_clients = workload_clients(workload);
    assert(n > 0 && n_quotas > 0);
    *places = (struct tally_places){.n_places = (uint32_t)n,
                                    .n_clients = n_clients,
                                    .n_quotas = n_quotas,
                                    .end_ns = workload->end_ns};
    for (size_t i = 0; i < n_quotas; i++) {
        places->lengths_ns[i] = quotas[i].period_ns;
        places->limits[i] = quotas[i].limit;
    }
    places->keys = calloc(n, sizeof(*places->keys));
    places->periods = calloc(n * n_quotas, sizeof(*places->periods));
    places->client_units = calloc(n_clients > 0 ? n_clients : 1, sizeof(uint64_t));
    if (places->keys != NULL && places->periods != NULL && places->client_units != NULL)
        return 0;
    tally_places_deinit(places);
    return err_set(error, STINT_E_SYSTEM, "out of memory for the figures of %zu keys", n);
}

void tally_places_deinit(struct tally_places *places)
{
    free(places->keys);
    free(places->periods);
    free(places->client_units);
    *places = (struct tally_places){0};
}

static void add_share(struct tally_shares *shares, uint64_t units)
{
    shares->n += 1;
    shares->sum += (double)units;
    shares->squares += (double)units * (double)units;
}

static void end_period(struct tally_quota *quota, struct tally_period *period, uint64_t limit)
{
    quota->usable_units += min_u64(period->asked, limit);
    quota->used_units += period->used;
    *period = (struct tally_period){0};
}

void tally_leave(struct tally *tally, struct tally_places *places, uint32_t place)
{
    struct tally_key *key = &places->keys[place];
    if (!key->asked)
        return;
    tally->keys++;
    add_share(&tally->key_shares, key->units);
    if (key->denied > tally->denied_most) {
        tally->denied_most = key->denied;
        tally->denied_most_key = (uint64_t)key->owner << 32 | place;
    }
    *key = (struct tally_key){.admitted = key->admitted + 1};
}

static uint32_t granted(const struct sim_event *event, const struct stint_decision *decision)
{
    return decision->outcome == STINT_ALLOW ? event->cost : 0;
}

/* How much a unit counts that is admitted at this instant. */
static double weight_at(uint64_t at_ns, uint64_t period_ns, uint64_t end_ns)
{
    if (at_ns / period_ns < WARM_PERIODS || at_ns >= end_ns)
        return 0;
    uint64_t inside_ns = min_u64(at_ns - WARM_PERIODS * period_ns, end_ns - at_ns);
    return inside_ns >= period_ns ? 1 : (double)inside_ns / (double)period_ns;
}

/* Periods of all keys lie alike: multiples of their length. */
static void count_periods(struct tally *tally, struct tally_places *places, size_t quota,
                          const struct sim_event *events, const struct stint_decision *decisions,
                          size_t n_events)
{
    uint64_t length_ns = places->lengths_ns[quota];
    for (size_t i = 0; i < n_events; i++) {
        uint64_t at_ns = events[i].at_ns;
        size_t place = sim_event_place(&events[i]);
        struct tally_period *period = &places->periods[place * places->n_quotas + quota];
        if (at_ns >= period->ends_ns) {
            end_period(&tally->quotas[quota], period, places->limits[quota]);
            period->ends_ns = (at_ns / length_ns + 1) * length_ns;
        }
        uint32_t units = granted(&events[i], &decisions[i]);
        period->asked += events[i].cost;
        period->used += units;
        if (units > 0)
            tally->quotas[quota].weighed_units +=
                units * weight_at(at_ns, length_ns, places->end_ns);
    }
}

static void count_clients(struct tally_places *places, const struct sim_event *events,
                          const struct stint_decision *decisions, size_t n_events)
{
    for (size_t i = 0; i < n_events; i++)
        if (events[i].client < places->n_clients)
            places->client_units[events[i].client] += granted(&events[i], &decisions[i]);
}

static void count_totals(struct tally *tally, const struct sim_event *events,
                         const struct stint_decision *decisions, size_t n_events)
{
    uint64_t outcomes[STINT_NEVER + 1] = {0}, asked = 0, allowed = 0, last_ns = tally->last_ns;
    for (size_t i = 0; i < n_events; i++) {
        outcomes[decisions[i].outcome]++;
        asked += events[i].cost;
        allowed += granted(&events[i], &decisions[i]);
        last_ns = max_u64(last_ns, events[i].at_ns);
        if (decisions[i].stored == 0)
            tally->unstored += decisions[i].outcome == STINT_DENY;
    }
    tally->decisions += n_events;
    tally->allowed += outcomes[STINT_ALLOW];
    tally->denied += outcomes[STINT_DENY];
    tally->never += outcomes[STINT_NEVER];
    tally->units_asked += asked;
    tally->units_allowed += allowed;
    tally->last_ns = last_ns;
}

void tally_count(struct tally *tally, struct tally_places *places, const struct sim_event *events,
                 const struct stint_decision *decisions, size_t n_events)
{
    count_totals(tally, events, decisions, n_events);
    for (size_t i = 0; i < places->n_quotas; i++)
        count_periods(tally, places, i, events, decisions, n_events);
    if (places->n_clients > 0)
        count_clients(places, events, decisions, n_events);
}

void tally_judge(struct tally *tally, struct tally_key *key, struct oracle_view view,
                 const struct oracle_ask *ask)
{
    uint64_t at_ns = ask->counted_ns;
    if (!view.is_justified && tally->unjustified++ == 0)
        tally->unjustified_at_ns = at_ns;
    if (!view.has_space) {
        key->false_run = 0;
        return;
    }
    tally->false_denials++;
    tally->false_units += ask->cost;
    if (key->false_run++ == 0)
        key->false_since_ns = at_ns;
    if (key->false_run > tally->false_longest)
        tally->false_longest = key->false_run;
    tally->false_longest_ns =
        max_u64(tally->false_longest_ns, sub_floor(at_ns, key->false_since_ns));
}

void tally_finish(struct tally *tally, struct tally_places *places, uint64_t end_ns)
{
    for (uint32_t place = 0; place < places->n_places; place++) {
        struct tally_period *periods = &places->periods[place * places->n_quotas];
        for (size_t i = 0; places->keys[place].asked && i < places->n_quotas; i++)
            if (periods[i].ends_ns <= end_ns)
                end_period(&tally->quotas[i], &periods[i], places->limits[i]);
        tally_leave(tally, places, place);
    }
    for (size_t i = 0; i < places->n_quotas && end_ns >= places->end_ns; i++) {
        double periods = (double)places->end_ns / (double)places->lengths_ns[i];
        if (periods >= WARM_PERIODS + 2)
            tally->quotas[i].weighed_limit =
                (periods - WARM_PERIODS - 1) * (double)places->limits[i];
    }
    for (uint32_t client = 0; client < places->n_clients; client++)
        add_share(&tally->client_shares, places->client_units[client]);
}
