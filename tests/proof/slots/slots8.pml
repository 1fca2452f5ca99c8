/* SPDX-License-Identifier: MIT */
/*
 * Slots of class 8: how threads find, publish, settle, charge and reuse them. Each access to shared
 * memory is one step; a thread may be stopped for ever before any of them. A pair is swapped in one
 * step and read in two, its second word first.
 *
 * Models slots_find, slots_see, slots_settle, slots_remove, slots_withdraw (slots.c), slots_reach and
 * slots_spill (slots.h), place_choose (place.c), publish, ask, swap (place8.c), asking_catch_up (asking.h), table_nonce (handle.c) and
 * ask_slots (ask.c). Left out: eviction of live states, which forgets units by design, and the
 * order of preference among slots that are free: any of them may be taken here.
 *
 * -DFRONT=n: the first n slots are the front, the others the main part, which a thread searches only
 * if it reads that `spilled` is not 0. In which part a new key gets its slot is not decided by more
 * than that: any free one may be taken.
 *
 * Time has the instants 0 … TIMES-1. A state of instant e admits LIMIT units; at e+1 it has
 * expired, and at e+2, the grace later, its slot may be reused. The mark is the latest now seen.
 *
 * -DALONE stops all threads but one at any step: that one must decide within a few searches.
 * -DLEAVE_OUT_x leaves out one step of the protocol: then spin must find an error.
 */
#ifndef WAYS
#define WAYS 2
#endif
#ifndef LIMIT
#define LIMIT 1
#endif
#ifndef TIMES
#define TIMES 1
#endif
#ifndef KEYS
#define KEYS 1
#endif
#ifndef ASKERS
#define ASKERS 3 /* threads; their keys go round */
#endif
#ifdef LEAVE_OUT_GRACE
#define GRACE 1
#else
#define GRACE 2
#endif

#define NONE 255
#ifndef NONCES
#define NONCES 4 /* of one thread, in turn */
#endif
#define KEY_OF(asker) ((asker) % KEYS + 1)

/* Valid: `second` is the state, its instant and count. Pending: a nonce. Tag 0: empty. */
typedef pair {
    byte tag;
    bit pending;
    byte second;
};
#define STATE(instant, count) ((instant) * 8 + (count))
#define INSTANT(state) ((state) / 8)
#define COUNT(state) ((state) % 8)

#ifdef ALONE
#define ALONE_MAX 5 /* searches of a thread that runs alone */
byte alone = NONE;  /* the only thread that goes on; NONE: all do */
#define MAY_GO (alone == NONE || alone == self)
#else
#define MAY_GO true
#endif

pair slot[WAYS];
#ifndef FRONT
#define FRONT WAYS
#endif
bit spilled; /* a key was, or soon is, published in the main part */

bit backwards; /* a key's hash decides in which order its slots are searched */
byte clock, mark;
byte granted[(KEYS + 1) * TIMES]; /* what callers got, by key and instant */
#define GRANTED(key, instant) granted[(key) * TIMES + (instant)]

/* No key has two valid slots. */
inline check_slots(key)
{
    n_valid = 0;
    at = 0;
    do
    :: at < WAYS ->
        n_valid = n_valid + (slot[at].tag == key && !slot[at].pending);
        at++
    :: else -> break
    od;
    assert(n_valid <= 1);
    n_valid = 0;
    at = 0
}

#define SAME(i, t, p, s) (slot[i].tag == t && slot[i].pending == p && slot[i].second == s)

/* cas16 */
inline swap_pair(i, t, p, s, new_tag, new_pending, new_second)
{
    d_step {
        MAY_GO;
        swapped = SAME(i, t, p, s);
        if
        :: swapped ->
            slot[i].tag = new_tag;
            slot[i].pending = new_pending;
            slot[i].second = new_second;
            check_slots(key)
        :: else
        fi
    }
}

/* cas16_load */
inline see(i)
{
    d_step { MAY_GO; second = slot[i].second };
    d_step { MAY_GO; tag = slot[i].tag; pending = slot[i].pending }
}

/* The word is read once: before the thread has published, that is, as it must not be. */
#ifdef LEAVE_OUT_READ_LAST
#define IS_READ (reach != 0)
#else
#define IS_READ false
#endif

inline slots_reach()
{
#if FRONT < WAYS
    if
    :: IS_READ
    :: !IS_READ ->
        d_step { MAY_GO; reach = (spilled -> WAYS : FRONT) }
    fi
#else
    reach = WAYS
#endif
}

inline slots_spill(i)
{
    if
    :: i >= FRONT -> d_step { MAY_GO; spilled = 1 }
    :: else
    fi
}

/* The swap that grants: what is in the state is what callers got, nothing less and nothing else. */
inline charge(i, instant, count)
{
    d_step {
        MAY_GO;
        swapped = SAME(i, tag, pending, second);
        if
        :: swapped ->
            GRANTED(key, instant)++;
            assert(GRANTED(key, instant) <= LIMIT);
            assert(GRANTED(key, instant) == count);
            slot[i].tag = key;
            slot[i].pending = 0;
            slot[i].second = STATE(instant, count);
            check_slots(key)
        :: else
        fi
    }
}

proctype asker(byte self)
{
    byte key = KEY_OF(self), now, i, mine, tag, second, found, n_valid, at, nonce, turn;
    byte mine_second;
#ifdef ALONE
    byte searches;
#endif
    bit pending, swapped;
    byte reach; /* the slots that are searched */

    d_step {
        now = clock;
        mark = (clock > mark -> clock : mark)
    }
again:
#ifdef ALONE
    searches = searches + (alone == self);
    assert(searches <= ALONE_MAX);
#endif
    /* slots_find: a valid slot, else a pending one of the key */
    found = NONE;
    turn = 0;
    slots_reach();
    do
    :: turn < reach ->
        i = (backwards -> reach - 1 - turn : turn);
        if
        :: MAY_GO && slot[i].tag == key ->
            see(i);
            if
            :: tag == key && !pending -> found = i; goto valid
            :: tag == key && pending -> found = i; mine_second = second
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
        second = mine_second;
        pending = 1;
        goto arrive
    :: else
    fi;

    /* place_choose: any slot that is empty, pending or long expired; none: a full table denies */
    if
    :: i = 0
#if WAYS > 1
    :: i = 1
#endif
#if WAYS > 2
    :: i = 2
#endif
    :: goto decided
    fi;
    see(i);
    if
    :: tag == 0 || pending || INSTANT(second) + GRACE <= now
    :: else -> goto decided
    fi;
    /* slots_spill, publish */
#ifndef LEAVE_OUT_SPILL_FIRST
    slots_spill(i);
#endif
#ifdef LEAVE_OUT_NONCE
    swap_pair(i, tag, pending, second, key, 1, 1);
#else
    swap_pair(i, tag, pending, second, key, 1, self * NONCES + nonce);
#endif
#ifdef LEAVE_OUT_SPILL_FIRST
    /* The word is set after the search instead, which the thread must get to without it. */
    if
    :: swapped && i >= FRONT ->
        mine = i;
        mine_second = self * NONCES + nonce;
        goto arrive
    :: else
    fi;
#endif
    nonce = (nonce + swapped) % NONCES;
    goto again;

arrive:
    /* slots_settle */
#ifndef LEAVE_OUT_SETTLE
    i = 0;
    slots_reach();
    do
    :: i < reach && i == mine -> i++
    :: i < reach && i != mine ->
        see(i);
        if
        :: tag != key -> i++
#ifdef LEAVE_OUT_REMOVE
        :: tag == key && pending && i > mine -> i++
#else
        :: tag == key && pending && i > mine ->
            swap_pair(i, tag, 1, second, 0, 0, 0); /* slots_remove */
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
        :: tag == key && pending && i < mine -> i++
#else
        :: tag == key && pending && i < mine -> goto withdraw
#endif
        :: tag == key && !pending -> goto withdraw
        fi
    :: else -> break
    od;
#endif
#ifdef LEAVE_OUT_SPILL_FIRST
    slots_spill(mine);
#endif
#ifndef LEAVE_OUT_CATCH_UP
    /* asking_catch_up */
    if
    :: d_step { MAY_GO && mark > now + 1 -> now = mark - 1 };
        goto again
    :: MAY_GO && mark <= now + 1
    fi;
#endif
    tag = key;
    pending = 1;
    second = mine_second;
    charge(mine, now, 1);
    if
    :: swapped -> goto decided
    :: else -> goto again
    fi;

withdraw:
    swap_pair(mine, key, 1, mine_second, 0, 0, 0);
    goto again;

valid:
    /* ask: the state's own time, if that is later */
    if
    :: INSTANT(second) < now -> charge(found, now, 1)
    :: INSTANT(second) >= now && COUNT(second) < LIMIT ->
        charge(found, INSTANT(second), COUNT(second) + 1)
    :: else ->
#ifdef LEAVE_OUT_READ_AGAIN
        swapped = 1;
#else
        mine_second = second;
        see(found);
        swapped = (tag == key && !pending && second == mine_second);
#endif
        /* A denial has its reason. */
        assert(!swapped || GRANTED(key, INSTANT(second)) == LIMIT)
    fi;
    if
    :: swapped
    :: else -> goto again
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
    od
#endif
#ifdef ALONE
    if
    :: alone = 0
    :: alone = 1
    fi
#endif
}
