/* SPDX-License-Identifier: MIT */
/*
 * The search of an adversary: it begins with random plans, and keeps each change of a plan after
 * which the worst window holds no fewer units.
 */
#ifndef STINT_TESTS_BOUND_ADVERSARY_H
#define STINT_TESTS_BOUND_ADVERSARY_H

#include "base/splitmix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STARTS 4 /* random plans of a search */

struct score {
    uint64_t most;   /* units in a window */
    uint64_t nearly; /* in a longer one: what the search goes by where the first is equal */
};

struct adversary {
    size_t plan_size;
    void (*draw)(void *plan, uint64_t *random);
    void (*change)(void *plan, uint64_t *random);
    struct score (*play)(const void *plan);
};

struct found {
    uint64_t most;
    unsigned plays, best_at;
};

static inline uint32_t draw(uint64_t *random, uint32_t n)
{
    return (uint32_t)(splitmix_next(random) >> 32) % n;
}

/* Ends where more than `enough` units were found. */
static inline struct found search(const struct adversary *adversary, unsigned plays, uint64_t seed,
                                  uint64_t enough)
{
    uint64_t random = seed;
    struct score best = {0, 0};
    struct found found = {0};
    void *plan = malloc(adversary->plan_size), *kept = malloc(adversary->plan_size);
    if (plan == NULL || kept == NULL)
        abort();
    adversary->draw(kept, &random);
    for (unsigned i = 0; i < plays && found.most <= enough; i++) {
        bool is_start = i % (plays / STARTS + 1) == 0;
        memcpy(plan, kept, adversary->plan_size);
        (is_start ? adversary->draw : adversary->change)(plan, &random);
        struct score score = adversary->play(plan);
        found.plays++;
        if (score.most > found.most) {
            found.most = score.most;
            found.best_at = i;
        }
        bool is_better =
            score.most > best.most || (score.most == best.most && score.nearly >= best.nearly);
        if (is_start || is_better) {
            best = score;
            memcpy(kept, plan, adversary->plan_size);
        }
    }
    free(plan);
    free(kept);
    return found;
}

#endif
