/* SPDX-License-Identifier: MIT */
/* A table of keys that were changed or lost lately, and the rule of waiting. */
#include "backend/memcached/memcached_turns.h"

#include "base/ns.h"
#include "base/splitmix.h"
#include "base/wide_int.h"

#include <stddef.h>

#define REMEMBERED_NS (2 * NS_PER_S) /* contention, and requests */
/* A store may read its own request; memcached counts whole seconds. */
#define OWN_NS ((TURN_REQUEST_TTL_S + 1) * NS_PER_S + REMEMBERED_NS)
#define SOON_NS (10 * NS_PER_MS) /* a store that rests longer leaves enough gaps */
#define LOSSES_MIN 2             /* one may be chance */
#define LOSSES_DOUBLE 4          /* lost swaps until the gap counts as too short */
#define GAP_MAX_NS (5 * NS_PER_MS)
#define WAIT_GAPS 4

static bool is_within(uint64_t length_ns, uint64_t at_ns, uint64_t now_ns)
{
    return at_ns != 0 && now_ns - at_ns < length_ns;
}

static bool is_needed(const struct turn *turn, uint64_t now_ns)
{
    return turn->is_listening || turn->contended_ns > now_ns;
}

struct turn *turns_find(struct turns *turns, uint64_t name)
{
    struct turn *turn = &turns->each[name % TURNS_MAX];
    return turn->name == name && name != 0 ? turn : NULL;
}

struct turn *turns_keep(struct turns *turns, uint64_t name, uint64_t now_ns)
{
    struct turn *turn = &turns->each[name % TURNS_MAX];
    if (name == 0 || (turn->name != name && is_needed(turn, now_ns)))
        return NULL;
    if (turn->name != name)
        *turn = (struct turn){.name = name};
    return turn;
}

/*
 * A store that always wins loses no swap, and would not know that others want the key. But if
 * another store reads its new value before it does, others do want it.
 */
bool turn_read(struct turn *turn, bool was_read, uint64_t now_ns)
{
    if (turn->is_unread && was_read && now_ns - turn->won_ns < SOON_NS)
        turn->contended_ns = now_ns + REMEMBERED_NS;
    turn->is_unread = false;
    return was_read; /* once it has read the state itself, it cannot detect other readers */
}

uint64_t turn_lost(struct turn *turn, uint64_t took_ns, uint64_t now_ns)
{
    turn->contended_ns = now_ns + REMEMBERED_NS;
    turn->lost += turn->lost < UINT32_MAX;
    if (turn->lost < LOSSES_MIN)
        return 0;
    uint32_t doubled = (turn->lost - LOSSES_MIN) / LOSSES_DOUBLE;
    uint64_t gap_ns = min_u64(took_ns, GAP_MAX_NS) << (doubled < 4 ? doubled : 4);
    gap_ns = min_u64(gap_ns, GAP_MAX_NS);
    /* Round trips differ a little. */
    if (is_within(REMEMBERED_NS, turn->asked_ns, now_ns) &&
        turn->asked_gap_ns >= gap_ns - gap_ns / 4)
        return 0;
    turn->asked_ns = now_ns;
    turn->asked_gap_ns = gap_ns;
    return gap_ns;
}

void turn_heard(struct turn *turn, uint64_t gap_ns, uint64_t now_ns)
{
    turn->heard_ns = now_ns;
    turn->heard_gap_ns = min_u64(gap_ns, GAP_MAX_NS);
}

bool turn_listens(const struct turn *turn, uint64_t now_ns)
{
    return !turn->is_listening && turn->contended_ns > now_ns;
}

/* A store whose own request is equal or larger is one of those that need the gap. */
static uint64_t gap_of(const struct turn *turn, uint64_t now_ns)
{
    bool is_own =
        is_within(OWN_NS, turn->asked_ns, now_ns) && turn->asked_gap_ns >= turn->heard_gap_ns;
    bool is_heard = is_within(REMEMBERED_NS, turn->heard_ns, now_ns);
    return is_heard && !is_own ? turn->heard_gap_ns : 0;
}

void turns_won(struct turns *turns, struct turn *turn, uint64_t now_ns)
{
    turn->won_ns = now_ns;
    turn->gap_ends_ns = now_ns + splitmix_next(&turns->random) % (gap_of(turn, now_ns) + 1);
    turn->is_unread = true;
    turn->lost = 0;
}

uint64_t turns_wait_ns(struct turns *turns, const struct turn *turn, uint64_t now_ns)
{
    return splitmix_next(&turns->random) % (WAIT_GAPS * gap_of(turn, now_ns) + 1);
}
