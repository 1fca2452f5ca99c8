/* SPDX-License-Identifier: MIT */
/*
 * Differential for concurrency: holds, releases and renewals against a plain list of holders.
 *
 * Never more than the limit held at once; a holder's name is given once, ends at its deadline, and
 * is refused from then on; a refused hold leaves the bytes alone, and its wait is right.
 */
#include "draw.h"

#define HOLDERS_MAX 512
#define STEPS_MAX 400

struct place {
    uint64_t name, deadline_ns, units;
};

struct run {
    struct stint_quota quota;
    struct span bytes;
    struct draw_hints hints;
    size_t n_places, size;
    struct place places[HOLDERS_MAX]; /* also those that have ended: their names stay refused */
    uint64_t latest_name;
    _Alignas(16) unsigned char state[HOLDERS_STATE_MAX];
    _Alignas(16) unsigned char before[HOLDERS_STATE_MAX];
};

static uint64_t held(const struct run *run, uint64_t now_ns)
{
    uint64_t units = 0;
    for (size_t i = 0; i < run->n_places; i++)
        if (run->places[i].deadline_ns > now_ns)
            units += run->places[i].units;
    return units;
}

/* The first deadline by which so many units are free, if nobody gives any back. */
static uint64_t free_at(const struct run *run, uint64_t now_ns, uint64_t cost)
{
    uint64_t best_ns = UINT64_MAX;
    for (size_t i = 0; i < run->n_places; i++) {
        uint64_t end_ns = run->places[i].deadline_ns;
        if (end_ns > now_ns && end_ns < best_ns && held(run, end_ns) + cost <= run->quota.limit)
            best_ns = end_ns;
    }
    return best_ns;
}

static uint64_t latest_deadline(const struct run *run, uint64_t now_ns)
{
    uint64_t latest_ns = now_ns;
    for (size_t i = 0; i < run->n_places; i++)
        if (run->places[i].units > 0 && run->places[i].deadline_ns > latest_ns)
            latest_ns = run->places[i].deadline_ns;
    return latest_ns;
}

/* The new holder's deadline is the lease's end, or a moment later where many share one. */
static void add(struct run *run, uint64_t name, uint64_t now_ns, uint64_t units)
{
    MUST(run->n_places < HOLDERS_MAX && name > run->latest_name);
    run->latest_name = name;
    uint64_t before_ns = latest_deadline(run, now_ns);
    run->places[run->n_places++] = (struct place){.name = name, .units = units};
    struct place *place = &run->places[run->n_places - 1];
    place->deadline_ns = stint_state_expires_at(&run->quota, run->state);
    MUST(place->deadline_ns >= now_ns + run->quota.lease_ns);
    MUST(place->deadline_ns >= before_ns);
}

static void hold(struct run *run, uint64_t now_ns, uint32_t cost)
{
    uint64_t name, used = held(run, now_ns), free = run->quota.limit - used;
    memcpy(run->before, run->state, run->size);
    struct stint_decision decision = stint_state_hold(&run->quota, run->state, now_ns, cost, &name);
    struct stint_ask ask = {.now_ns = now_ns, .cost = cost};
    draw_show("ask", &ask, &decision);
    MUST(decision.limit == run->quota.limit);
    if (decision.outcome != STINT_ALLOW || cost == 0) {
        MUST(memcmp(run->before, run->state, run->size) == 0);
        MUST(name == 0 && decision.granted == 0 && decision.remaining == free);
    }
    if (cost > run->quota.limit) {
        MUST(decision.outcome == STINT_NEVER);
    } else if (cost > free) {
        MUST(decision.outcome == STINT_DENY);
        MUST(now_ns + decision.retry_after_ns == free_at(run, now_ns, cost));
        run->hints.free_at_ns = now_ns + decision.retry_after_ns;
    } else {
        MUST(decision.outcome == STINT_ALLOW && decision.granted == cost);
        MUST(decision.remaining == free - cost && decision.retry_after_ns == 0);
        if (cost > 0)
            add(run, name, now_ns, cost);
    }
    run->hints.remaining = decision.remaining;
    MUST(held(run, now_ns) <= run->quota.limit);
}

static void release_or_renew(struct run *run, uint64_t now_ns, uint8_t pick, bool renews)
{
    if (run->n_places == 0)
        return;
    struct place *place = &run->places[pick % run->n_places];
    uint64_t name = place->name + (pick >= 250);
    bool alive = pick < 250 && place->units > 0 && place->deadline_ns > now_ns;
    for (size_t i = 0; i < run->n_places && !alive && pick >= 250; i++)
        if (run->places[i].name == name && run->places[i].units > 0 &&
            run->places[i].deadline_ns > now_ns) {
            place = &run->places[i];
            alive = true;
        }
    memcpy(run->before, run->state, run->size);
    int code = renews ? stint_state_renew(&run->quota, run->state, now_ns, &name)
                      : stint_state_release(&run->quota, run->state, now_ns, name);
    MUST(code == (alive ? STINT_OK : STINT_E_GONE));
    if (!alive) {
        MUST(memcmp(run->before, run->state, run->size) == 0);
        return;
    }
    uint64_t units = place->units;
    place->units = 0;
    if (renews)
        add(run, name, now_ns, units);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run run;
    run.bytes = span_of(data, size);
    if (!draw_quota(&run.bytes, &run.quota, STINT_CONCURRENCY) || run.quota.limit == 0)
        return 0;
    draw_show_quota(&run.quota);
    run.size = stint_state_size(&run.quota);
    memset(run.state, 0, run.size);
    run.n_places = 0;
    run.latest_name = 0;
    run.hints = (struct draw_hints){
        .period_ns = run.quota.lease_ns, .capacity = run.quota.limit, .remaining = run.quota.limit};
    run.hints.now_ns = bytes_number(&run.bytes, 7) % TABLE_LIFE_NS;
    for (int i = 0; i < STEPS_MAX && run.bytes.len > 0 && run.n_places < HOLDERS_MAX; i++) {
        uint8_t verb = bytes_u8(&run.bytes);
        bool stale;
        uint64_t now_ns = draw_now(&run.bytes, &run.hints, &stale);
        if (now_ns > TABLE_LIFE_NS)
            continue;
        /* A late clock sees again what has ended: what it may then hold is tried in table.c. */
        now_ns = stale ? run.hints.now_ns : now_ns;
        run.hints.now_ns = now_ns;
        if (verb % 4 < 2)
            hold(&run, now_ns, draw_cost(&run.bytes, &run.hints));
        else
            release_or_renew(&run, now_ns, bytes_u8(&run.bytes), verb % 4 == 3);
    }
    return 0;
}
