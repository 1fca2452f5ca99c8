/* SPDX-License-Identifier: MIT */
/* Counts by walking over all of them. */
#include "model/uses.h"

#include "bytes.h"

bool uses_is_full(const struct uses *uses)
{
    return uses->n == USES_MAX;
}

static void insert(struct uses *uses, struct use use)
{
    MUST(uses->n < USES_MAX);
    size_t at = uses->n++;
    for (; at > 0 && uses->use[at - 1].at_ns > use.at_ns; at--)
        uses->use[at] = uses->use[at - 1];
    uses->use[at] = use;
}

uint64_t uses_add(struct uses *uses, uint64_t now_ns, uint64_t units)
{
    uses->clock_ns = uses_effective(uses, now_ns);
    insert(uses, (struct use){uses->clock_ns, now_ns, units, uses->era, false});
    return uses->clock_ns;
}

void uses_add_booked(struct uses *uses, uint64_t start_ns, uint64_t units)
{
    insert(uses, (struct use){start_ns, start_ns, units, uses->era, true});
}

uint64_t uses_within(const struct uses *uses, uint64_t at_ns, struct uses_length length)
{
    uint64_t units = 0;
    for (size_t i = 0; i < uses->n; i++) {
        const struct use *use = &uses->use[i];
        if (use->at_ns <= at_ns &&
            (unsigned __int128)(at_ns - use->at_ns) * length.divisor < length.ns)
            units += use->units;
    }
    return units;
}
