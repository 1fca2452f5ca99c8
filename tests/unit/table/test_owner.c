/* SPDX-License-Identifier: MIT */
/* Owner words: one owner at a time; the dead are taken over, the stuck are told from the dead. */
#define _GNU_SOURCE
#include "unit/test_quota.h"

#include "table/region/owner.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(test_one_at_a_time)
{
    uint64_t word = 0, mine, other, self = owner_self();
    assert_int_equal(owner_take(&word, self, &mine), OWNER_TAKEN);
    assert_true(word == mine && (word & OWNER_HELD) != 0);
    /* Its owner lives (it is this process) but does not give it back. */
    assert_int_equal(owner_take(&word, self, &other), OWNER_STUCK);
    assert_true(other == mine);
    assert_true(owner_give_back(&word, mine));
    assert_true((word & OWNER_HELD) == 0);
    assert_int_equal(owner_take(&word, self, &other), OWNER_TAKEN);
    assert_true(other != mine); /* the sequence tells two holds of one process apart */
    assert_false(owner_give_back(&word, mine));
    assert_true(owner_give_back(&word, other));
}

TEST(test_abandoned_stays_with_its_owner)
{
    uint64_t word = 0, mine, other, self = owner_self();
    owner_take(&word, self, &mine);
    word = mine | OWNER_ABANDONED;
    assert_int_equal(owner_take(&word, self, &other), OWNER_LEFT);
    assert_false(owner_give_back(&word, mine));
    assert_true(owner_give_back(&word, mine | OWNER_ABANDONED));
    assert_int_equal(owner_take(&word, self, &other), OWNER_TAKEN);
}

/* A child that holds a word, which it tells, and waits. */
static pid_t child_that_holds(uint64_t *word)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        uint64_t held = 0, mine;
        owner_take(&held, owner_self(), &mine);
        if (write(ready[1], &mine, sizeof(mine)) != (ssize_t)sizeof(mine))
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], word, sizeof(*word)), sizeof(*word));
    close(ready[0]);
    close(ready[1]);
    return child;
}

TEST(test_the_expired_are_robbed)
{
    uint64_t word = 0, mine;
    pid_t child = child_that_holds(&word);
    assert_false(owner_has_ended(word));
    assert_int_equal(owner_take(&word, owner_self(), &mine), OWNER_STUCK);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(owner_has_ended(word));
    assert_int_equal(owner_take(&word, owner_self(), &mine), OWNER_TAKEN_OVER);
    assert_true(word == mine);
}

/* The same process id with another start time is another process. */
TEST(test_ids_come_back)
{
    uint64_t word = owner_self() | OWNER_HELD;
    assert_false(owner_has_ended(word));
    assert_true(owner_has_ended(word ^ (UINT64_C(1) << 30)));
}
