/* SPDX-License-Identifier: MIT */
/*
 * Wide slots: a state of two words that is written word by word, under an owner word. Each thread is
 * a process of its own. Between any two of its steps a thread can end (its process is then seen to
 * have ended), or rest for as long as the others like and go on later: an owner that has not ended
 * may be held to be stuck at any time.
 *
 * Models owner_take, owner_give_back, owner_has_ended (owner.c), give_back, mark_left, abandon,
 * displace, repair, full_until, is_free, may_go, publish, owned_ask, own (wide.c), slots_find,
 * slots_settle, slots_remove (slots.c), place_choose (place.c), table_block, table_blocked_until
 * (blocks.c), asking_catch_up (asking.h) and ask_new_key, ask_slots (ask.c). Left out: other quotas
 * and classes of the key, and a table of blocks that is full. Two reads of which the second confirms
 * the first are one step, and so are the reads of owner_take that a swap of the same word confirms.
 *
 * Time has the instants 0 … TIMES-1. A state of instant e admits LIMIT units; at e+1 it has expired,
 * and at e+2, the grace later, its slot may be reused. The mark is the latest now seen. The units of
 * an evicted state are forgotten by design.
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
#ifndef KEYS
#define KEYS 1
#endif
#ifndef ASKERS
#define ASKERS 2 /* threads; their keys go round */
#endif
#ifndef ASKS
#define ASKS 1 /* requests of a thread */
#endif
#ifndef ENDS
#define ENDS 0 /* threads that may end, in all */
#endif
#ifndef EVICTIONS
#define EVICTIONS 0 /* of live states, in all */
#endif
#ifndef SEQUENCES
#define SEQUENCES 8 /* a word is taken so often, less one; then a thread that needs it denies */
#endif

#ifndef TIMES
#define TIMES 1
#endif
#define GRACE 1

#define NONE 255
#define ABANDONED 254 /* the tag of a slot that was left to a stuck owner */
#define KEY_OF(asker) ((asker) % KEYS + 1)

typedef pair {
    byte tag; /* 0: empty */
    bit pending;
    byte generation;
};
typedef word {
    bit held, left;
    byte sequence, process;
};
typedef state {
    byte units, copy; /* an instant and a count; unequal: half written */
    byte until;       /* expires_at_ns; 0: there is nothing to lose */
};
#define STATE(instant, count) ((instant) * 8 + (count))
#define INSTANT(state) ((state) / 8)
#define COUNT(state) ((state) % 8)

pair slot[WAYS];
word owner[WAYS];
state states[WAYS];
byte blocked[KEYS + 1]; /* until then */
bit ended[ASKERS];
byte granted[(KEYS + 1) * TIMES], evictions;
byte clock, mark;
#define GRANTED(key, instant) granted[(key) * TIMES + (instant)]

#ifdef ALONE
#define ALONE_MAX 5 /* searches of a thread that runs alone */
byte alone = NONE;
#define MAY_GO (!ended[self] && (alone == NONE || alone == self))
#else
#define MAY_GO (!ended[self])
#endif

#define PAIR_IS(i, t, p, g) (slot[i].tag == t && slot[i].pending == p && slot[i].generation == g)
#define WORD_IS(i, l, s, p) \
    (owner[i].held && owner[i].left == l && owner[i].sequence == s && owner[i].process == p)
#define HAS_ENDED(i) (owner[i].held && ended[owner[i].process])

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

inline see(i)
{
    d_step {
        MAY_GO;
        tag = slot[i].tag;
        pending = slot[i].pending;
        generation = slot[i].generation
    }
}

inline read_pair(i)
{
    d_step {
        MAY_GO;
        now_tag = slot[i].tag;
        now_pending = slot[i].pending;
        now_generation = slot[i].generation
    }
}

#define IS_SAME (now_tag == tag && now_pending == pending && now_generation == generation)

inline take_word(i)
{
    owner[i].held = 1;
    owner[i].left = 0;
    owner[i].sequence++;
    owner[i].process = self;
    mine = owner[i].sequence
}

#ifdef LEAVE_OUT_LEFT_IS_FREE
#define IS_FREE (tag == 0 || worth_pending || IS_OVER(until))
#else
#define IS_FREE (tag == 0 || tag == ABANDONED || worth_pending || IS_OVER(until))
#endif
#define IS_OVER(instant) ((instant) == 0 || (instant) + GRACE <= now)

#define TAKEN 0
#define TAKEN_OVER 1
#define STUCK 2
#define IS_LEFT 3
#define NO_MORE 4 /* of the model: sequences */

/* owner_take. A held word is waited for; how long that takes depends on the others. */
inline take_owner(i)
{
    if
    :: d_step { MAY_GO && owner[i].sequence == SEQUENCES - 1 && (!owner[i].held || HAS_ENDED(i)) ->
           taken = NO_MORE }
    :: d_step { MAY_GO && owner[i].sequence < SEQUENCES - 1 && !owner[i].held ->
           take_word(i); taken = TAKEN }
    :: d_step { MAY_GO && owner[i].sequence < SEQUENCES - 1 && HAS_ENDED(i) ->
           take_word(i);
#ifdef LEAVE_OUT_REPAIR
           taken = TAKEN
#else
           taken = TAKEN_OVER
#endif
       }
    :: d_step { MAY_GO && owner[i].held && !HAS_ENDED(i) && owner[i].left -> taken = IS_LEFT }
    :: d_step { MAY_GO && owner[i].held && !HAS_ENDED(i) && !owner[i].left ->
#ifdef LEAVE_OUT_LEAVING
           if
           :: owner[i].sequence < SEQUENCES - 1 -> take_word(i); taken = TAKEN_OVER
           :: else -> taken = NO_MORE
           fi
#else
           stuck = owner[i].sequence;
           stuck_process = owner[i].process;
           taken = STUCK
#endif
       }
    fi
}

inline mark_left(i)
{
    if
    :: tag != ABANDONED -> swap_pair(i, tag, pending, generation, ABANDONED, 1, generation + 1)
    :: else
    fi
}

inline abandon(i)
{
    d_step {
        MAY_GO;
        swapped = WORD_IS(i, 0, stuck, stuck_process);
        if
        :: swapped -> owner[i].left = 1
        :: else
        fi
    };
    if
    :: swapped -> mark_left(i)
    :: else
    fi
}

inline write_state(i, n)
{
    d_step { MAY_GO; states[i].units = n };
    d_step { MAY_GO; states[i].copy = n }
}

inline set_until(i, value)
{
    d_step { MAY_GO; states[i].until = value }
}

inline read_until(i)
{
    d_step { MAY_GO; until = states[i].until }
}

/* With the pair that was read after the word was taken over. */
inline repair(i)
{
    read_until(i);
    write_state(i, 0);
    if
    :: now_pending || now_tag == 0
    :: else ->
        d_step { MAY_GO; until = (until > mark + 1 -> mark + 1 : until) };
#ifdef LEAVE_OUT_EXPIRED_REPAIR
        until = (until > now -> until : 0);
#endif
        if
        :: until > 0 -> write_state(i, STATE(until - 1, LIMIT))
        :: else
        fi;
        set_until(i, until)
    fi
}

/* `given`: the word was ours until now; then what was charged is granted. */
inline give_back(i)
{
    d_step {
        MAY_GO;
        given = WORD_IS(i, 0, mine, self);
#ifdef LEAVE_OUT_ANEW
        if
        :: charged ->
            GRANTED(key, INSTANT(units))++;
            assert(GRANTED(key, INSTANT(units)) <= LIMIT)
        :: else
        fi;
#else
        if
        :: given && charged ->
            GRANTED(key, INSTANT(units))++;
            assert(GRANTED(key, INSTANT(units)) <= LIMIT);
            /* All that callers got is in the state, and the state is that key's. */
            assert(slot[i].tag == key && !slot[i].pending && states[i].units == states[i].copy);
            assert(states[i].units == units && states[i].until > INSTANT(units));
            assert(COUNT(units) >= GRANTED(key, INSTANT(units)))
        :: else
        fi;
#endif
        if
        :: given -> owner[i].held = 0; owner[i].process = 0
        :: else
        fi
    };
    if
    :: given
    :: else ->
#ifdef LEAVE_OUT_TAG_FIRST
        read_pair(i);
#else
        do
        :: read_pair(i);
           if
           :: now_tag == ABANDONED -> break
           :: else ->
               swap_pair(i, now_tag, now_pending, now_generation, ABANDONED, 1, now_generation + 1)
           fi
        od;
#endif
        set_until(i, 0);
        d_step {
            MAY_GO;
            if
            :: WORD_IS(i, 1, mine, self) ->
                owner[i].held = 0;
                owner[i].left = 0;
                owner[i].process = 0
            :: else
            fi
        };
#ifdef LEAVE_OUT_TAG_FIRST
        swap_pair(i, now_tag, now_pending, now_generation, 0, 0, now_generation + 1)
#endif
    fi
}

proctype asker(byte self)
{
    byte key = KEY_OF(self), asks = ASKS;
    byte i, turn, tag, generation, now_tag, now_generation, units, other;
    byte mine, stuck, stuck_process, taken;
    byte now, until;
    bit pending, now_pending, swapped, given, charged, worth_pending, decided, evicts;
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
        turn = 0;
        i = NONE;
        tag = 0;
        pending = 0;
        generation = 0;
        now_tag = 0;
        now_pending = 0;
        now_generation = 0;
        units = 0;
        other = 0;
        mine = 0;
        stuck = 0;
        stuck_process = 0;
        taken = 0;
        swapped = 0;
        given = 0;
        charged = 0;
        until = 0;
        worth_pending = 0;
        decided = 0;
        evicts = 0
    };
    /* slots_find */
    do
    :: d_step { MAY_GO && turn < WAYS && !(slot[turn].tag == key && !slot[turn].pending) ->
           if
           :: slot[turn].tag == key ->
               i = turn;
               tag = key;
               pending = 1;
               generation = slot[turn].generation
           :: else
           fi;
           turn++
       }
    :: d_step { MAY_GO && turn < WAYS && slot[turn].tag == key && !slot[turn].pending ->
           i = turn;
           tag = key;
           pending = 0;
           generation = slot[turn].generation
       };
       break
    :: MAY_GO && turn == WAYS -> break
    od;
    turn = 0;
    if
    :: i != NONE -> goto own
    :: else
    fi;

    /* ask_new_key: a key without a state may have had one that was left */
    if
    :: MAY_GO && blocked[key] > now -> goto decide
    :: MAY_GO && blocked[key] <= now
    fi;
    /* place_choose: any slot that may be taken; none: a full table denies */
    if
    :: i = 0
#if WAYS > 1
    :: i = 1
#endif
    :: goto decide
    fi;
    see(i);
    worth_pending = (tag != 0 && tag != ABANDONED && pending);
    if
    :: tag == 0
    :: tag != 0 && pending && tag != ABANDONED
    :: tag == ABANDONED ->
        if
        :: MAY_GO && owner[i].held && !HAS_ENDED(i) -> goto decide /* is_left */
        :: MAY_GO && !(owner[i].held && !HAS_ENDED(i))
        fi
    :: tag != 0 && !pending ->
        if
        :: MAY_GO && IS_OVER(states[i].until)
        :: MAY_GO && !IS_OVER(states[i].until) && evictions < EVICTIONS
        :: MAY_GO && !IS_OVER(states[i].until) && evictions == EVICTIONS -> goto decide
        fi
    fi;

    /* publish */
    take_owner(i);
    if
    :: taken == NO_MORE -> goto decide
    :: taken == STUCK ->
        /* is_free, of an owner that is stuck */
        read_until(i);
        read_pair(i);
        if
        :: IS_SAME && IS_FREE -> abandon(i)
        :: else
        fi;
        goto again
    :: taken == IS_LEFT -> mark_left(i); goto again
    :: else
    fi;
    read_pair(i);
    if
    :: taken == TAKEN_OVER -> repair(i)
    :: else
    fi;
    read_until(i);
    evicts = 0;
#ifdef LEAVE_OUT_FREE
    swapped = 1;
#else
    swapped = IS_SAME && IS_FREE;
#endif
    /* A thread that takes an abandoned slot, since its owner has ended or gone on, gets it. */
    assert(swapped || !IS_SAME || tag != ABANDONED);
    if
    :: swapped
    :: !swapped && IS_SAME && !pending && until > 0 ->
        /* may_go */
        d_step {
            MAY_GO;
            assert(states[i].units == states[i].copy);
            swapped = (COUNT(states[i].units) < LIMIT && evictions < EVICTIONS);
            evicts = swapped
        }
    :: else
    fi;
    if
    :: swapped ->
        write_state(i, 0);
        set_until(i, 0);
        d_step {
            MAY_GO;
            swapped = PAIR_IS(i, now_tag, now_pending, now_generation);
            if
            :: swapped ->
                if
                :: evicts -> GRANTED(now_tag, 0) = 0; evictions++
                :: else
                fi;
                slot[i].tag = key;
                slot[i].pending = 1;
                slot[i].generation = now_generation + 1
            :: else
            fi
        }
    :: else
    fi;
    give_back(i);
    goto again;

own:
    take_owner(i);
    if
    :: taken == NO_MORE -> goto decide
    :: else
    fi;
    read_pair(i);
    if
    :: taken == STUCK ->
        if
        :: !IS_SAME -> goto again
        :: else
        fi;
        /* displace: the block first */
#ifndef LEAVE_OUT_BLOCK
        /* full_until: the last unit that can have been charged is over */
        d_step { MAY_GO; blocked[key] = (mark + 1 > blocked[key] -> mark + 1 : blocked[key]) };
#endif
        abandon(i);
        goto decide
    :: taken == IS_LEFT ->
        if
        :: IS_SAME -> mark_left(i); goto decide
        :: else -> mark_left(i); goto again
        fi
    :: taken == TAKEN_OVER -> repair(i)
    :: else
    fi;
#ifndef LEAVE_OUT_SAME
    if
    :: !IS_SAME -> give_back(i); goto again
    :: else
    fi;
#endif

    /* owned_ask */
    if
    :: pending ->
        other = 0;
        do
        :: other < WAYS && other == i -> other++
        :: other < WAYS && other != i ->
            read_pair(other);
            if
            :: now_tag != key -> other++
            :: now_tag == key && now_pending && other > i ->
                swap_pair(other, key, 1, now_generation, 0, 0, now_generation);
                if
                :: swapped -> other++
                :: else ->
                    if
                    :: MAY_GO && slot[other].tag != key -> other++
                    :: MAY_GO && slot[other].tag == key -> goto withdraw
                    fi
                fi
            :: else -> goto withdraw
            fi
        :: else -> break
        od;
#ifndef LEAVE_OUT_CATCH_UP
        /* asking_catch_up */
        if
        :: d_step { MAY_GO && mark > now + 1 -> now = mark - 1 };
            goto back
        :: MAY_GO && mark <= now + 1
        fi;
#endif
#ifndef LEAVE_OUT_BLOCK_AFTER
        if
        :: MAY_GO && blocked[key] > now -> decided = 1; goto back
        :: MAY_GO && blocked[key] <= now
        fi
#endif
    :: else
    fi;
    skip;
    d_step {
        MAY_GO;
        units = states[i].units;
        /* No thread decides on a state that is half written, unless the slot is lost to it. */
        assert(units == states[i].copy || !WORD_IS(i, 0, mine, self))
    };
    decided = 1;
    if
    :: INSTANT(units) < now || COUNT(units) < LIMIT ->
        units = (INSTANT(units) < now -> STATE(now, 1) : units + 1);
        write_state(i, units);
#ifndef LEAVE_OUT_EXPIRY
        set_until(i, INSTANT(units) + 1);
#endif
        charged = 1;
        if
        :: pending ->
            swap_pair(i, key, 1, generation, key, 0, generation);
            decided = swapped;
            charged = swapped
        :: else
        fi
    :: else
    fi;
back:
    give_back(i);
    if
    :: decided && given -> goto decide
#ifdef LEAVE_OUT_ANEW
    :: decided && !given -> goto decide
#endif
    :: else -> goto again
    fi;

withdraw:
    swap_pair(i, key, 1, generation, 0, 0, generation);
    decided = 0;
    goto back;

decide:
    skip;
    d_step {
        i = 0;
        tag = 0;
        pending = 0;
        generation = 0;
        now_tag = 0;
        now_pending = 0;
        now_generation = 0;
        mine = 0;
        swapped = 0;
        until = 0;
        units = 0;
        asks--
    };
    if
    :: asks > 0 -> goto next
    :: else
    fi
}

#if ENDS > 0
proctype ends()
{
    byte left = ENDS, n;
    do
    :: left > 0 ->
        atomic {
            select(n : 0 .. ASKERS - 1);
            ended[n] = 1;
            left--
        }
    :: break
    od
}
#endif

init
{
    atomic {
        byte n;
        for (n : 0 .. ASKERS - 1) {
            run asker(n)
        }
#if ENDS > 0
        run ends()
#endif
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
