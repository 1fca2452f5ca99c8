/* SPDX-License-Identifier: MIT */
/*
 * One key under one rule, whose quotas have states in different classes: threads publish it in their
 * own class, search the others, and move its units. Each access to shared memory is one step, and a
 * thread may be stopped for ever before any, or for as long as the others like.
 *
 * Models rule_look, rule_arrive, rule_meet, rule_arrived, rule_put_back, scan, sort, meet_frozen,
 * is_valid_beside, is_in_the_way, read_other, freeze (rule.c), publish, ask, put_back, swap (place8.c),
 * slots_remove, slots_withdraw (slots.c), asking_catch_up (asking.h) and ask_new_key, ask_arriving, ask_slots (ask.c). Left out:
 * other slots of the key in its class, which slots8.pml has; the steps of the other classes, which
 * slots16.pml and wide.pml have: here pair and state are swapped in one step, as in class 8.
 *
 * Time has the instants 0 … TIMES-1. A state of instant e admits LIMIT units; at e+1 it has expired,
 * and at e+2, the grace later, a frozen slot is taken away. The mark is the latest now seen.
 *
 * How long a thread is patient depends on the others: it may give up waiting at any time.
 *
 * -DALONE stops all threads but one at any step: that one must decide within a few searches.
 * -DLEAVE_OUT_x leaves out one step of the protocol: then spin must find an error.
 */
#ifndef CLASSES
#define CLASSES 2
#endif
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef ASKERS
#define ASKERS 2 /* threads; their quotas' classes go round */
#endif
#ifndef ASKS
#define ASKS 1 /* requests of a thread */
#endif
#ifndef NONCES
#define NONCES 4 /* of one thread; then it denies */
#endif

#ifndef TIMES
#define TIMES 1
#endif
#ifdef LEAVE_OUT_GRACE
#define GRACE 0
#else
#define GRACE 1
#endif

#define NONE 255
#define EMPTY 0
#define PENDING 1
#define FROZEN 2
#define VALID 3

/* Valid: `second` is the state, its instant and count. Pending, frozen: a nonce. */
typedef pair {
    byte is;
    byte second;
    byte until; /* frozen: when its units have expired */
};
#define STATE(instant, count) ((instant) * 8 + (count))
#define INSTANT(state) ((state) / 8)
#define COUNT(state) ((state) % 8)

pair slot[CLASSES];
byte granted[TIMES]; /* what callers got at each instant */
byte clock, mark;

#ifdef ALONE
#define ALONE_MAX 8 /* searches of a thread that runs alone */
byte alone = NONE;
#define MAY_GO (alone == NONE || alone == self)
#define MAY_WAIT (alone != self)
#else
#define MAY_GO true
#define MAY_WAIT true
#endif

#define PAIR_IS(c, p, s) (slot[c].is == p && slot[c].second == s)
#if CLASSES == 3
#define N_VALID ((slot[0].is == VALID) + (slot[1].is == VALID) + (slot[2].is == VALID))
#else
#define N_VALID ((slot[0].is == VALID) + (slot[1].is == VALID))
#endif

inline swap(c, p, s, new_is, new_second)
{
    d_step {
        MAY_GO;
        swapped = PAIR_IS(c, p, s);
        if
        :: swapped ->
            slot[c].is = new_is;
            slot[c].second = new_second;
            if
            :: new_is == VALID ->
                assert(N_VALID == 1);
                /* The units that callers got are here, and no others. */
                assert(COUNT(new_second) == granted[INSTANT(new_second)])
            :: else
            fi
        :: else
        fi
    }
}

/* The swap that grants a unit. */
inline charge(c, p, s, new_second)
{
    d_step {
        MAY_GO;
        swapped = PAIR_IS(c, p, s);
        if
        :: swapped ->
            granted[INSTANT(new_second)]++;
            assert(granted[INSTANT(new_second)] <= LIMIT);
            slot[c].is = VALID;
            slot[c].second = new_second;
            assert(N_VALID == 1);
            assert(COUNT(new_second) == granted[INSTANT(new_second)])
        :: else
        fi
    }
}

/* The slot was read before, with its state. */
inline freeze(c, s, new_until)
{
    d_step {
        MAY_GO;
        swapped = PAIR_IS(c, VALID, s);
        if
        :: swapped ->
            slot[c].is = FROZEN;
            slot[c].second = nonce;
            slot[c].until = new_until
        :: else
        fi
    }
}

inline draw_nonce()
{
#ifdef LEAVE_OUT_NONCE
    nonce = 1
#else
    if
    :: turn == NONCES -> goto decide
    :: else -> turn++; nonce = self * NONCES + turn
    fi
#endif
}

proctype asker(byte self)
{
    byte class = self % CLASSES, asks = ASKS;
    byte c, mine, from, nonce, turn, units;
    byte now, frozen, frozen_nonce, frozen_until, valid, before, after, before_nonce, after_nonce;
    bit swapped;
#ifdef ALONE
    byte searches;
#endif

next:
#ifdef ALONE
    searches = 0;
#endif
    skip;
    d_step {
        now = clock;
        mark = (clock > mark -> clock : mark)
    };
again:
#ifdef ALONE
    searches = searches + (alone == self);
    assert(searches <= ALONE_MAX);
#endif
    skip;
    d_step {
        MAY_GO;
        c = 0;
        from = 0;
        nonce = 0;
        units = 0;
        frozen = NONE;
        frozen_nonce = 0;
        frozen_until = 0;
        valid = NONE;
        before = NONE;
        after = NONE;
        before_nonce = 0;
        after_nonce = 0;
        swapped = 0;
        from = slot[class].is;
        mine = slot[class].second;
        frozen_until = slot[class].until
    };
    if
    :: from == VALID ->
        /* ask of a valid slot */
        if
        :: INSTANT(mine) < now || COUNT(mine) < LIMIT ->
            if
            :: INSTANT(mine) < now -> charge(class, VALID, mine, STATE(now, 1))
            :: else -> charge(class, VALID, mine, mine + 1)
            fi;
            if
            :: swapped -> goto decide
            :: else -> goto again
            fi
        :: else ->
            if
            :: MAY_GO && PAIR_IS(class, VALID, mine) -> goto decide
            :: MAY_GO && !PAIR_IS(class, VALID, mine) -> goto again
            fi
        fi
    :: from == EMPTY ->
        draw_nonce();
        swap(class, EMPTY, mine, PENDING, nonce);
        goto again
    :: from == FROZEN ->
        frozen = class;
        frozen_nonce = mine;
        goto meet
    :: else
    fi;

scan:
    skip;
    d_step {
        frozen = NONE;
        frozen_nonce = 0;
        frozen_until = 0;
        valid = NONE;
        before = NONE;
        after = NONE;
        before_nonce = 0;
        after_nonce = 0;
        c = 0
    };
#ifndef LEAVE_OUT_SCAN
    do
    :: d_step { MAY_GO && c < CLASSES ->
           if
           :: c != class && slot[c].is == FROZEN -> 
               frozen = c;
               frozen_nonce = slot[c].second;
               frozen_until = slot[c].until
           :: c != class && slot[c].is == VALID -> valid = c; units = slot[c].second
           :: c < class && slot[c].is == PENDING -> before = c; before_nonce = slot[c].second
           :: c > class && slot[c].is == PENDING -> after = c; after_nonce = slot[c].second
           :: else
           fi;
           c++
       }
    :: c == CLASSES -> break
    od;
#endif
#ifndef LEAVE_OUT_MEET
    if
    :: frozen != NONE -> goto meet
    :: else
    fi;
#endif
#ifndef LEAVE_OUT_WAIT
    if
    :: before != NONE ->
        if
        :: MAY_WAIT -> goto again
        :: swap(before, PENDING, before_nonce, EMPTY, 0); goto scan /* not patient any more */
        fi
    :: else
    fi;
#endif
#ifndef LEAVE_OUT_REMOVE
    if
    :: after != NONE -> swap(after, PENDING, after_nonce, EMPTY, 0); goto scan
    :: else
    fi;
#endif
#ifndef LEAVE_OUT_CATCH_UP
    /* asking_catch_up */
    if
    :: d_step { MAY_GO && mark > now + 1 -> now = mark - 1 };
        goto again
    :: MAY_GO && mark <= now + 1
    fi;
#endif
    if
    :: valid == NONE ->
        charge(class, PENDING, mine, STATE(now, 1));
        if
        :: swapped -> goto decide
        :: else -> goto again
        fi
    :: else
    fi;
    /* read_other: what is decided on is the state of the pair that was seen */
    if
    :: MAY_GO && PAIR_IS(valid, VALID, units)
    :: MAY_GO && !PAIR_IS(valid, VALID, units) -> goto again
    fi;
    if
#ifdef LEAVE_OUT_EXPIRED_MOVES
    :: INSTANT(units) < now ->
        draw_nonce();
        freeze(valid, units, now + 1);
        if
        :: swapped -> swap(valid, FROZEN, nonce, EMPTY, 0)
        :: else
        fi;
        goto again
#endif
    :: INSTANT(units) >= now && COUNT(units) >= LIMIT ->
        swap(class, PENDING, mine, EMPTY, 0);
        goto decide
    :: else
    fi;
#ifdef LEAVE_OUT_FREEZE
    from = VALID;
    nonce = units;
#else
    from = FROZEN;
    draw_nonce();
    frozen_until = (INSTANT(units) < now -> now + 1 : INSTANT(units) + 1);
    freeze(valid, units, frozen_until);
    if
    :: swapped
    :: else -> goto again
    fi;
#endif
    d_step {
        MAY_GO;
        swapped = PAIR_IS(class, PENDING, mine);
        if
        :: swapped ->
            /* Expired units are no more, and its state's time is now. */
            slot[class].second = (INSTANT(units) < now -> STATE(now, 1) : units + 1);
            slot[class].is = VALID;
            granted[INSTANT(slot[class].second)]++;
            assert(granted[INSTANT(slot[class].second)] <= LIMIT);
#ifndef LEAVE_OUT_FREEZE
            assert(N_VALID == 1);
#endif
            assert(COUNT(slot[class].second) == granted[INSTANT(slot[class].second)])
        :: else
        fi
    };
    if
    :: swapped ->
        /* rule_arrived */
        swap(valid, from, nonce, EMPTY, 0);
        goto decide
    :: else ->
#ifdef LEAVE_OUT_PUT_BACK
        swap(valid, from, nonce, EMPTY, 0);
#else
        swap(valid, from, nonce, VALID, units);
#endif
        goto again
    fi;

meet:
    /* meet_frozen: an expired one goes; else it was seen first, and a valid one after */
    if
    :: frozen_until + GRACE <= now -> swap(frozen, FROZEN, frozen_nonce, EMPTY, 0); goto again
    :: else
    fi;
    skip;
    d_step { c = 0; valid = NONE };
    do
    :: d_step { MAY_GO && c < CLASSES ->
           if
           :: c != frozen && slot[c].is == VALID -> valid = c
           :: else
           fi;
           c++
       }
    :: c == CLASSES -> break
    od;
#ifdef LEAVE_OUT_BESIDE
    valid = 0;
#endif
    if
    :: valid != NONE -> swap(frozen, FROZEN, frozen_nonce, EMPTY, 0); goto again
    :: valid == NONE && MAY_WAIT -> goto again
    :: valid == NONE /* denied: its units live as long as they may */
    fi;

decide:
    skip;
    d_step { asks--; mine = 0; from = 0; c = 0; units = 0; valid = NONE; frozen = NONE };
    if
    :: asks > 0 -> goto next
    :: else
    fi
}

init
{
    atomic {
        byte n;
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
