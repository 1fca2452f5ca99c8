/* SPDX-License-Identifier: MIT */
/*
 * Slots of class 16: the state is apart from the pair of the tag, each swapped in one step of its
 * own, and a generation connects them. Threads find, publish, settle, charge, evict and convert;
 * each access to shared memory is one step, and a thread may be stopped for ever before any.
 *
 * Models slots_find, slots_settle, slots_remove, slots_withdraw, slots_is_bound,
 * slots_is_given_away (slots.c), place_choose (place.c), freeze_state, hand_over, make_valid,
 * finish, finish_for_changer, publish, pending_ask, convert, valid_ask (place16.c), asking_catch_up
 * (asking.h) and ask_slots (ask.c). Left out: the patience of changer_is_slow: a change under way
 * may be finished by another thread at once.
 *
 * Time has the instants 0 … TIMES-1. A state of instant e admits LIMIT units; at e+1 it has expired,
 * and at e+2, the grace later, its slot may be reused. `latest` is the latest now seen.
 *
 * `granted` is what callers of a key got since its state was last evicted: eviction forgets units
 * by design. -DALONE stops all threads but one at any step: that one must decide within a few
 * searches. -DLEAVE_OUT_x leaves out one step of the protocol: then spin must find an error.
 */
#ifndef WAYS
#define WAYS 2
#endif
#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef KEYS
#define KEYS 1
#endif
#ifndef ASKERS
#define ASKERS 2 /* threads; their keys go round */
#endif
#ifndef TIMES
#define TIMES 1
#endif
#ifdef LEAVE_OUT_GRACE
#define GRACE 0
#else
#define GRACE 1
#endif
#ifndef CHANGERS
#define CHANGERS 0 /* of them, whose quota has other parameters than any state */
#endif

#define NONE 255
#ifndef GENERATIONS
#define GENERATIONS 5 /* a slot is handed over so often, less one; then it is full */
#endif
#ifndef EVICTIONS
#define EVICTIONS 1 /* of live states, in all */
#endif
#define NEXT(generation) ((generation) + 1)
#define IS_LAST(generation) ((generation) == GENERATIONS - 1)
#define KEY_OF(asker) ((asker) % KEYS + 1)

typedef pair {
    byte tag; /* 0: empty */
    bit pending;
    byte generation;
};
typedef state {
    byte units; /* an instant and a count; frozen: until when the key is full, 0: it is not */
    byte mark;  /* a generation */
    bit frozen;
    byte owner; /* no memory has this: the key whose units these are */
};

#define STATE(instant, count) ((instant) * 8 + (count))
#define INSTANT(state) ((state) / 8)
#define COUNT(state) ((state) % 8)

pair slot[WAYS];
state states[WAYS];
bit backwards;
byte granted[(KEYS + 1) * TIMES], evictions;
byte clock, latest;
#define GRANTED(key, instant) granted[(key) * TIMES + (instant)]

#ifdef ALONE
#define ALONE_MAX 8 /* searches of a thread that runs alone */
byte alone = NONE;
#define MAY_GO (alone == NONE || alone == self)
#else
#define MAY_GO true
#endif

#define PAIR_IS(i, t, p, g) (slot[i].tag == t && slot[i].pending == p && slot[i].generation == g)
#define STATE_IS(i, u, m, f) (states[i].units == u && states[i].mark == m && states[i].frozen == f)

/* cas16 of a pair. No key has two valid slots, but one whose state is handed over already. */
inline swap_pair(i, t, p, g, new_tag, new_pending, new_generation)
{
    d_step {
        MAY_GO;
        swapped = PAIR_IS(i, t, p, g);
        if
        :: swapped ->
            slot[i].tag = new_tag;
            slot[i].pending = new_pending;
            slot[i].generation = new_generation
        :: else
        fi
    }
}

/* cas16 of a state, which then belongs to `new_owner`. */
inline swap_state(i, u, m, f, new_units, new_mark, new_frozen, new_owner)
{
    d_step {
        MAY_GO;
        swapped = STATE_IS(i, u, m, f);
        if
        :: swapped ->
            states[i].units = new_units;
            states[i].mark = new_mark;
            states[i].frozen = new_frozen;
            states[i].owner = new_owner
        :: else
        fi
    }
}

/* The swap that grants a unit: what is in the state is at least what callers got. */
inline charge(i, u, m, f, new_units, new_mark)
{
    d_step {
        MAY_GO;
        swapped = STATE_IS(i, u, m, f);
        if
        :: swapped ->
            assert(states[i].owner == key || states[i].owner == 0);
            GRANTED(key, INSTANT(new_units))++;
            assert(GRANTED(key, INSTANT(new_units)) <= LIMIT);
            assert(GRANTED(key, INSTANT(new_units)) <= COUNT(new_units));
            states[i].units = new_units;
            states[i].mark = new_mark;
            states[i].frozen = 0;
            states[i].owner = key
        :: else
        fi
    }
}

/* slots_see: the generation is read before the tag */
inline see(i)
{
    d_step { MAY_GO; generation = slot[i].generation };
    d_step { MAY_GO; tag = slot[i].tag; pending = slot[i].pending }
}

/* cas16_load_stable */
inline read_state(i)
{
    d_step { MAY_GO; units = states[i].units; mark = states[i].mark; frozen = states[i].frozen }
}

#define LEAVES (frozen && mark == NEXT(generation))
#define ARRIVES (frozen && mark == generation)
#define IS_OVER(until) ((until) == 0 || (until) + GRACE <= now)
#define HAS_EXPIRED (!frozen && mark == generation && IS_OVER(INSTANT(units) + 1))
#define IS_BOUND ((!frozen && mark == generation) || (ARRIVES && units != 0))

/* The state's own time, if that is later. */
#define IS_FREE (INSTANT(units) < now || COUNT(units) < LIMIT)
#define AFTER_ONE_MORE (INSTANT(units) < now -> STATE(now, 1) : (units + 1))

/* Step 1 of a hand-over; an eviction forgets what the owner was granted. */
inline freeze_state(i, until, new_owner)
{
    d_step {
        MAY_GO;
        swapped = STATE_IS(i, units, mark, frozen);
        if
        :: swapped ->
            if
            :: new_owner == 0 && states[i].owner != 0 && !expired ->
                GRANTED(states[i].owner, 0) = 0;
                evictions = evictions + (states[i].frozen == 0)
            :: else
            fi;
            states[i].units = until;
            states[i].mark = NEXT(generation);
            states[i].frozen = 1;
            states[i].owner = new_owner
        :: else
        fi
    }
}

/* slots_remove of a pending slot as it was seen: `swapped` is whether it is gone. */
inline remove(i)
{
#ifndef LEAVE_OUT_GIVING_AWAY
    read_state(i);
    if
    :: IS_BOUND -> swapped = 0
    :: !IS_BOUND && ARRIVES ->
        swap_state(i, 0, generation, 1, 0, NEXT(generation), 1, 0)
    :: else -> swapped = 1
    fi;
    if
    :: swapped ->
#endif
        swap_pair(i, tag, 1, generation, 0, 0, generation)
#ifndef LEAVE_OUT_GIVING_AWAY
    :: else
    fi
#endif
}

proctype asker(byte self)
{
    byte key = KEY_OF(self), i, turn, mine, found, tag, generation, units, mark, mine_generation;
    byte now, until, after;
    bit pending, frozen, swapped, expired;
#ifdef ALONE
    byte searches;
#endif

    d_step {
        now = clock;
        latest = (clock > latest -> clock : latest)
    }
again:
#ifdef ALONE
    searches = searches + (alone == self);
    assert(searches <= ALONE_MAX);
#endif
    /* slots_find: a valid slot, else a pending one of the key */
    found = NONE;
    turn = 0;
    do
    :: turn < WAYS ->
        i = (backwards -> WAYS - 1 - turn : turn);
        if
        :: MAY_GO && slot[i].tag == key ->
            see(i);
            if
            :: tag == key && !pending ->
                read_state(i); /* slots_is_given_away */
                if
                :: LEAVES && units == 0
                :: else -> goto valid
                fi
            :: tag == key && pending -> found = i; mine_generation = generation
            :: else
            fi
        :: MAY_GO && slot[i].tag != key
        fi;
        turn++
    :: else -> break
    od;
    if
    :: found != NONE ->
        mine = found;
        goto arrive
    :: else
    fi;

    /* place_choose: any slot that may be taken; none: a full table denies */
    if
    :: i = 0
#if WAYS > 1
    :: i = 1
#endif
    :: goto decided
    fi;
    see(i);
    if
    :: IS_LAST(generation) -> goto decided
    :: else
    fi;
    read_state(i);
    if
    :: MAY_GO && PAIR_IS(i, tag, pending, generation)
    :: MAY_GO && !PAIR_IS(i, tag, pending, generation) -> goto again
    fi;
    if
    :: tag == 0 && !(LEAVES && units != 0)
    :: tag != 0 && pending && (!IS_BOUND || (ARRIVES && IS_OVER(units)))
    :: tag != 0 && !pending && LEAVES && IS_OVER(units)
    :: tag != 0 && !pending && HAS_EXPIRED
    :: tag != 0 && !pending && !LEAVES && !HAS_EXPIRED && evictions < EVICTIONS
    :: else -> goto decided
    fi;
    expired = HAS_EXPIRED || IS_OVER(units) && frozen;
    /* publish, hand_over */
#ifndef LEAVE_OUT_FREEZE
    if
    :: LEAVES
    :: else ->
        freeze_state(i, 0, 0);
        if
        :: swapped
        :: else -> goto again
        fi
    fi;
#endif
    swap_pair(i, tag, pending, generation, key, 1, NEXT(generation));
    goto again;

arrive:
    /* pending_ask */
    generation = mine_generation;
    read_state(mine);
#ifndef LEAVE_OUT_FREEZE
    if
    :: !ARRIVES && !frozen && mark == generation ->
        swap_pair(mine, key, 1, generation, key, 0, generation); /* make_valid */
        goto again
    :: !ARRIVES && (frozen || mark != generation) ->
        swap_pair(mine, key, 1, generation, 0, 0, generation); /* slots_withdraw */
        goto again
    :: ARRIVES && units != 0 ->
        /* finish_for_changer */
        swap_state(mine, units, mark, 1, STATE(units - 1, LIMIT), generation, 0, key);
        if
        :: swapped -> swap_pair(mine, key, 1, generation, key, 0, generation)
        :: else
        fi;
        goto again
    :: else
    fi;
#endif
    /* slots_settle */
#ifndef LEAVE_OUT_SETTLE
    i = 0;
    do
    :: i < WAYS && i == mine -> i++
    :: i < WAYS && i != mine ->
        see(i);
        if
        :: tag != key -> i++
        :: else ->
            read_state(i);
            if
            :: !pending && LEAVES && units == 0 -> i++
            :: pending && i > mine && !IS_BOUND ->
#ifdef LEAVE_OUT_REMOVE
                i++
#else
                remove(i);
                if
                :: swapped -> i++
                :: else ->
                    see(i);
                    if
                    :: tag != key -> i++
                    :: else -> goto withdraw
                    fi
                fi
#endif
#ifdef LEAVE_OUT_LOWER
            :: pending && i < mine && !IS_BOUND -> i++
            :: else -> goto withdraw
#else
            :: else -> goto withdraw
#endif
            fi
        fi
    :: else -> break
    od;
#endif
#ifndef LEAVE_OUT_CATCH_UP
    /* asking_catch_up */
    if
    :: d_step { MAY_GO && latest > now + 1 -> now = latest - 1 };
        goto again
    :: MAY_GO && latest <= now + 1
    fi;
#endif
    /* finish: steps 3 and 4 */
    generation = mine_generation;
#ifdef LEAVE_OUT_FREEZE
    charge(mine, units, mark, frozen, STATE(now, 1), generation);
#else
    charge(mine, 0, generation, 1, STATE(now, 1), generation);
#endif
    if
    :: swapped -> swap_pair(mine, key, 1, generation, key, 0, generation); goto decided
    :: else -> goto again
    fi;

withdraw:
    tag = key;
    generation = mine_generation;
    remove(mine);
    goto again;

valid:
    /* valid_ask: the pair was seen at i; the state is read in two steps, its mark first */
    swapped = 0;
    d_step { MAY_GO; mark = states[i].mark; frozen = states[i].frozen };
    d_step { MAY_GO; units = states[i].units };
    if
    :: LEAVES ->
        swap_pair(i, key, 0, generation, key, 1, NEXT(generation)); /* a changer was slow */
        goto again
#ifndef LEAVE_OUT_GENERATION
    :: !LEAVES && (frozen || mark != generation) ->
        if
        :: MAY_GO && PAIR_IS(i, key, 0, generation) && STATE_IS(i, units, mark, frozen) ->
            swap_pair(i, key, 0, generation, 0, 0, generation)
        :: MAY_GO && !(PAIR_IS(i, key, 0, generation) && STATE_IS(i, units, mark, frozen))
        fi;
        goto again
#endif
    :: else
    fi;
    if
    :: IS_FREE && self < CHANGERS && !IS_LAST(generation) ->
        /* convert: full until the old units are over, should this thread end */
#ifdef LEAVE_OUT_UNTIL
        until = 0;
#else
        until = INSTANT(units) + 1;
#endif
        after = AFTER_ONE_MORE;
        freeze_state(i, until, key);
        if
        :: swapped
        :: else -> goto again
        fi;
        swap_pair(i, key, 0, generation, key, 1, NEXT(generation));
        if
        :: swapped
        :: else -> goto again
        fi;
        generation = NEXT(generation);
        charge(i, until, generation, 1, after, generation);
        if
        :: swapped -> swap_pair(i, key, 1, generation, key, 0, generation)
        :: else -> goto again
        fi
    :: IS_FREE && self >= CHANGERS ->
        after = AFTER_ONE_MORE;
        charge(i, units, mark, frozen, after, mark);
        if
        :: swapped
        :: else -> goto again
        fi
    :: else ->
        if
        :: MAY_GO && STATE_IS(i, units, mark, frozen)
        :: MAY_GO && !STATE_IS(i, units, mark, frozen) -> goto again
        fi
    fi;
decided:
    skip
}

init
{
    atomic {
        byte n;
        if
        :: backwards = 0
        :: backwards = 1
        fi;
        for (n : 0 .. ASKERS - 1) {
            run asker(n)
        }
    }
#if TIMES > 1
    do
    :: clock < TIMES - 1 -> clock++
    :: else -> break
    od;
#endif
#ifdef ALONE
    if
    :: alone = 0
    :: alone = 1
    fi
#endif
}
