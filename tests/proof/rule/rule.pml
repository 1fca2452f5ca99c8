/* SPDX-License-Identifier: MIT */
/*
 * One key under one rule, whose quotas have states in different classes: threads publish it in their
 * own class, search the others, and move its units. Each access to shared memory is one step, and a
 * thread may be stopped for ever before any, or for as long as the others like.
 *
 * Models rule_look, rule_arrive, rule_meet, rule_arrived, rule_put_back, scan, sort, meet_frozen,
 * is_valid_beside, is_in_the_way, read_other, freeze (rule.c), publish, ask, put_back, swap (place8.c),
 * slots_remove, slots_withdraw (slots.c) and ask_new_key, ask_arriving, ask_slots (ask.c). Left out:
 * other slots of the key in its class, which slots8.pml has; the steps of the other classes, which
 * slots16.pml and wide.pml have: here pair and state are swapped in one step, as in class 8; and the
 * end of a period, so what is frozen stays so until its mover goes on or another thread sees that it
 * has arrived.
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

#define NONE 255
#define EMPTY 0
#define PENDING 1
#define FROZEN 2
#define VALID 3

/* Valid: `second` is the units. Pending, frozen: a nonce. */
typedef pair {
    byte is;
    byte second;
};

pair slot[CLASSES];
byte granted;

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
                assert(new_second == granted)
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
            granted++;
            assert(granted <= LIMIT);
            slot[c].is = VALID;
            slot[c].second = new_second;
            assert(N_VALID == 1);
            assert(new_second == granted)
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
    byte frozen, frozen_nonce, valid, before, after, before_nonce, after_nonce;
    bit swapped;
#ifdef ALONE
    byte searches;
#endif

next:
#ifdef ALONE
    searches = 0;
#endif
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
        valid = NONE;
        before = NONE;
        after = NONE;
        before_nonce = 0;
        after_nonce = 0;
        swapped = 0;
        from = slot[class].is;
        mine = slot[class].second
    };
    if
    :: from == VALID ->
        /* ask of a valid slot */
        if
        :: mine < LIMIT ->
            charge(class, VALID, mine, mine + 1);
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
           :: c != class && slot[c].is == FROZEN -> frozen = c; frozen_nonce = slot[c].second
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
    if
    :: valid == NONE ->
        charge(class, PENDING, mine, 1);
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
    :: units >= LIMIT -> swap(class, PENDING, mine, EMPTY, 0); goto decide
    :: else
    fi;
#ifdef LEAVE_OUT_FREEZE
    from = VALID;
    nonce = units;
#else
    from = FROZEN;
    draw_nonce();
    swap(valid, VALID, units, FROZEN, nonce);
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
            granted++;
            assert(granted <= LIMIT);
            slot[class].is = VALID;
            slot[class].second = units + 1;
#ifndef LEAVE_OUT_FREEZE
            assert(N_VALID == 1);
#endif
            assert(units + 1 == granted)
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
    /* meet_frozen: the frozen slot was seen first, a valid one after */
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
#ifdef ALONE
    if
    :: alone = 0
    :: alone = 1
    fi
#endif
}
