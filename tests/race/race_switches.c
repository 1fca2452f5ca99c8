/* SPDX-License-Identifier: MIT */
/*
 * The table under every schedule of a few requests with at most so many switches: a task is
 * stopped, or killed, at any point (schedule.h), and another goes on until it is stopped, or ends.
 * Random schedules (race_schedules.c) have more tasks, and find by chance what is found here for
 * certain.
 *
 * race_switches [SWITCHES [WORD]]: the plays with WORD in their names, with at most SWITCHES where
 * more stand below; 0: as they stand. It ends at the first play that fails.
 */
#include "race/scheduled.h"

#include "base/wide_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRANTS_MAX 16
#define BEGIN_NS (100 * SCHEDULED_HOUR_NS)
#define SKEW_MAX_NS NS_PER_S
/* Pauses, before a task that has stopped counts as ended: in rule.c and place16.c. */
#define PATIENCE 200

/*
 * What a task asks, letter by letter: 0 1 2 take a unit under that quota, a b c peek under it, f
 * finds the state under 0, s carries it from 0 to 1, k books a unit, r gives one back that was used
 * now, l takes one of two keys each, o one of the other key, t one with a ticket and gives it back.
 * > is an hour later, from then on, + ten hours, < a nanosecond earlier.
 */
struct play {
    const char *name;
    const char *specs[SCHEDULED_QUOTAS_MAX]; /* per hour */
    const char *asks[SCHEDULE_TASKS_MAX];
    unsigned switches;
    unsigned happens;
};

/*
 * A task is killed, too, at any point; other keys have all places of blocks; other keys have all
 * places of states but two, of which the one that is chosen first comes behind the other, or but
 * one; the quotas are not of one rule.
 */
enum { KILLS = 1, BLOCKED = 2, TWO_PLACES = 4, ONE_PLACE = 8, APART = 16 };

/* Another caller may have been ahead, and with it the state: then that is the time of the grant. */
struct grant {
    uint64_t now_ns, latest_ns;
};

static struct {
    const struct play *play;
    struct scheduled on;
    unsigned n_tasks;
    uint32_t key, other_key;
    void *fresh; /* the region before any request */
    struct grant grants[GRANTS_MAX];
    unsigned n_grants;            /* of the key */
    uint64_t n_others;            /* of the other key */
    uint64_t n_missed;            /* finds of a key that was granted a unit */
    uint64_t latest_ns, taken_ns; /* of all requests, and of those that can write to a state */
} world;

static struct {
    struct schedule_turn turns[SCHEDULE_TURNS_MAX];
    struct schedule_end end;
    uint64_t n;
} search;

static bool failed;

/* ---- The tasks ------------------------------------------------------------------------------- */

static void admit(uint64_t now_ns)
{
    if (world.n_grants == GRANTS_MAX)
        abort();
    world.grants[world.n_grants++] = (struct grant){now_ns, world.taken_ns};
}

static bool takes(struct stint_table *table, const struct stint_quota *quota, uint32_t key,
                  uint64_t now_ns)
{
    return stint_take(table, quota, &key, sizeof(key), 1, now_ns).outcome == STINT_ALLOW;
}

static void take_two(struct stint_table *table, const struct stint_quota *quota, uint64_t now_ns)
{
    const struct stint_item items[2] = {{quota, &world.key, sizeof(world.key), 1},
                                        {quota, &world.other_key, sizeof(world.key), 1}};
    if (stint_take_all(table, items, 2, now_ns).outcome == STINT_ALLOW) {
        admit(now_ns);
        world.n_others++;
    }
}

static void take_and_cancel(struct stint_table *table, const struct stint_quota *quota,
                            uint64_t now_ns)
{
    const struct stint_item item = {quota, &world.key, sizeof(world.key), 1};
    struct stint_ticket ticket;
    if (stint_reserve(table, &item, 1, SCHEDULED_HOUR_NS, now_ns, &ticket).outcome == STINT_ALLOW)
        stint_cancel(table, ticket, now_ns, NULL);
}

static void book(struct stint_table *table, const struct stint_quota *quota, uint64_t now_ns)
{
    const struct stint_item item = {quota, &world.key, sizeof(world.key), 1};
    struct stint_ticket ticket;
    struct stint_decision decision =
        stint_book(table, &item, 1, 10 * SCHEDULED_HOUR_NS, now_ns, &ticket);
    if (decision.outcome == STINT_ALLOW)
        admit(now_ns + decision.retry_after_ns);
}

static void find(struct stint_table *table, const struct stint_quota *quota, uint64_t now_ns)
{
    struct stint_entry entry;
    bool is_there = world.n_grants > 0;
    int code = stint_find(table, quota, &world.key, sizeof(world.key), now_ns, &entry);
    world.n_missed += is_there && code != STINT_OK;
}

static void ask(struct stint_table *table, char letter, uint64_t now_ns)
{
    const struct stint_quota *quotas = world.on.quotas;
    if (letter >= 'a' && letter <= 'c') {
        const struct stint_item item = {&quotas[letter - 'a'], &world.key, sizeof(world.key), 1};
        stint_peek(table, &item, 1, now_ns);
    } else if (letter == 'k') {
        book(table, &quotas[0], now_ns);
    } else if (letter == 'r') {
        const struct stint_item item = {&quotas[0], &world.key, sizeof(world.key), 1};
        stint_refund(table, &item, 1, now_ns, now_ns);
    } else if (letter == 's') {
        stint_set_quota(table, &quotas[0], &quotas[1], &world.key, sizeof(world.key), now_ns);
    } else if (letter == 'f') {
        find(table, &quotas[0], now_ns);
    } else if (letter == 'l') {
        take_two(table, &quotas[0], now_ns);
    } else if (letter == 't') {
        take_and_cancel(table, &quotas[0], now_ns);
    } else if (letter == 'o') {
        world.n_others += takes(table, &quotas[0], world.other_key, now_ns);
    } else if (takes(table, &quotas[letter - '0'], world.key, now_ns)) {
        admit(now_ns);
    }
}

static void work(unsigned number, uint64_t seed)
{
    uint64_t now_ns = BEGIN_NS;
    (void)seed;
    for (const char *letter = world.play->asks[number]; *letter != '\0'; letter++) {
        if (*letter == '>' || *letter == '+') {
            now_ns += (*letter == '+' ? 10 : 1) * SCHEDULED_HOUR_NS;
        } else if (*letter == '<') {
            now_ns--;
        } else {
            world.latest_ns = max_u64(world.latest_ns, now_ns);
            if (strchr("abcf", *letter) == NULL)
                world.taken_ns = max_u64(world.taken_ns, now_ns);
            ask(&world.on.tasks[number].table, *letter, now_ns);
        }
    }
}

/* ---- What holds ------------------------------------------------------------------------------ */

static void fail(const char *what, uint64_t units)
{
    failed = true;
    fprintf(stderr, "%s, turns", world.play->name);
    for (unsigned i = 0; i < SCHEDULE_TURNS_MAX && search.turns[i].points > 0; i++) {
        const struct schedule_turn *turn = &search.turns[i];
        fprintf(stderr, turn->points == SCHEDULE_TO_END ? " %u:end" : " %u:%u%s", turn->task,
                turn->points, turn->kills ? "!" : "");
    }
    fprintf(stderr, ": %s: %llu\n", what, (unsigned long long)units);
}

static uint32_t limit(void)
{
    uint32_t most = 0;
    for (unsigned i = 0; i < world.on.n_quotas; i++)
        most = world.on.quotas[i].limit > most ? world.on.quotas[i].limit : most;
    return most;
}

/* The most in a window of an hour, if the grants in `late` have the latest time they may have. */
static uint64_t most_in_window(unsigned late)
{
    uint64_t most = 0, times_ns[GRANTS_MAX];
    for (unsigned i = 0; i < world.n_grants; i++)
        times_ns[i] = late >> i & 1 ? world.grants[i].latest_ns : world.grants[i].now_ns;
    for (unsigned i = 0; i < world.n_grants; i++) {
        uint64_t units = 0;
        for (unsigned j = 0; j < world.n_grants; j++)
            units += times_ns[j] <= times_ns[i] && times_ns[i] - times_ns[j] < SCHEDULED_HOUR_NS;
        most = units > most ? units : most;
    }
    return most;
}

static void check_windows(void)
{
    unsigned late = 0;
    while (late >> world.n_grants == 0 && most_in_window(late) > limit())
        late++;
    if (late >> world.n_grants != 0)
        fail("granted in one window", most_in_window(0));
    uint64_t windows = (world.latest_ns - BEGIN_NS) / SCHEDULED_HOUR_NS + 1;
    if (world.n_others > windows * limit())
        fail("granted of the other key", world.n_others);
}

/* How many of these letters the tasks have. */
static unsigned count(const char *letters)
{
    unsigned n = 0;
    for (unsigned i = 0; i < world.n_tasks; i++)
        for (const char *at = world.play->asks[i]; (at = strpbrk(at, letters)) != NULL; at++)
            n++;
    return n;
}

/*
 * All units that are free in the end, and those that callers got, are the limit; and callers got
 * them unless lists or tickets held some meanwhile. Less of them are free after a task was stopped
 * for so long that another made the key full for it.
 */
static void check_rest(const struct stint_table_info *info)
{
    uint64_t rest = scheduled_drain(&world.on, world.key, world.latest_ns);
    bool exact = (world.play->happens & ONE_PLACE) == 0 && search.end.killed == 0 &&
                 search.end.waits < PATIENCE && info->owners_displaced == 0 && count("<>+") == 0;
    if (exact && count("lt") == 0 && world.n_grants < min_u64(count("012"), limit()))
        fail("granted, and denied others", world.n_grants);
    world.taken_ns = world.latest_ns;
    for (uint64_t i = 0; i < rest; i++)
        admit(world.latest_ns);
    world.n_others += scheduled_drain(&world.on, world.other_key, world.latest_ns);
    check_windows();
    if (exact && world.n_grants + info->undo_kept_units < limit())
        fail("granted and free in the end", world.n_grants);
    if (exact && world.n_others + info->undo_kept_units < limit())
        fail("granted and free in the end, of the other key", world.n_others);
}

/* Quotas that are apart have a state each: what callers got is in one of them, once. */
static void check_carried(const struct stint_table_info *info)
{
    uint64_t held = 0;
    for (unsigned i = 0; i < world.on.n_quotas; i++) {
        const struct stint_item none = {&world.on.quotas[i], &world.key, sizeof(world.key), 0};
        struct stint_decision decision = stint_peek(world.on.table, &none, 1, world.latest_ns);
        held += decision.limit - decision.remaining;
    }
    bool exact = search.end.waits < PATIENCE && info->owners_displaced == 0;
    if (exact ? held != world.n_grants : held < world.n_grants)
        fail("held of what was granted", held);
}

/* Places that have not begun are an interval apart: no refund has moved one. */
static void check_places(void)
{
    for (unsigned i = 0; i < world.n_grants; i++)
        for (unsigned j = 0; j < i; j++)
            if (world.grants[i].now_ns > BEGIN_NS &&
                world.grants[i].now_ns == world.grants[j].now_ns)
                fail("places begin at once", 2);
}

static void check(void)
{
    struct stint_table_info info;
    int found;
    if (search.end.hung) {
        fail("waits for ever", 0);
        return; /* what it waits for is not to be had now either */
    }
    stint_table_info(world.on.table, world.latest_ns, &info);
    found = scheduled_frozen_class(&world.on);
    if (search.end.killed == 0 && info.owners_displaced == 0 && found >= 0)
        fail("is left frozen in class", (uint64_t)found);
    if (search.end.waits == 0 && world.n_missed > 0)
        fail("not found", world.n_missed);
    if (count("k") > 0) {
        check_places();
        return;
    }
    if ((world.play->happens & APART) != 0) {
        check_carried(&info);
        return;
    }
    check_rest(&info);
    found = scheduled_full_quota(&world.on, world.key, limit(), world.latest_ns);
    if (found >= 0)
        fail("is full for ever under quota", (uint64_t)found);
}

/* ---- Every schedule -------------------------------------------------------------------------- */

static void execute(unsigned n_turns)
{
    const struct region *region = &world.on.table->region;
    const struct schedule schedule = {
        .turns = search.turns, .n_turns = n_turns, .tasks = world.n_tasks, .work = work};
    memset(&search.turns[n_turns], 0, sizeof(search.turns[0]) * (SCHEDULE_TURNS_MAX - n_turns));
    memcpy(region->header, world.fresh, region->fixed.bytes);
    *world.on.table->process = (struct process_page){.owner = 0};
    for (unsigned i = 0; i < world.n_tasks; i++)
        world.on.tasks[i].page = (struct process_page){.owner = 0};
    world.n_grants = 0;
    world.n_others = world.n_missed = 0;
    world.latest_ns = world.taken_ns = BEGIN_NS;
    schedule_boot();
    search.end = schedule_run(&schedule);
    search.n++;
    check();
}

static bool asks_as_one_before(unsigned task)
{
    for (unsigned i = 0; i < task; i++)
        if (strcmp(world.play->asks[i], world.play->asks[task]) == 0)
            return true;
    return false;
}

static bool ends(void)
{
    return failed || search.end.has_new_points;
}

/* All that can follow n turns, after which the tasks in `over` have ended. */
static void explore(unsigned n, unsigned over, unsigned switches, bool kills)
{
    const unsigned left = ((1u << world.n_tasks) - 1) & ~over;
    if ((left & (left - 1)) == 0) {
        execute(n);
        return;
    }
    for (unsigned task = 0; task < world.n_tasks && !ends(); task++) {
        const unsigned after = over | 1u << task;
        if (after == over || (n > 0 && search.turns[n - 1].task == task) ||
            (n == 0 && asks_as_one_before(task)))
            continue;
        search.turns[n] = (struct schedule_turn){.task = (uint8_t)task, .points = SCHEDULE_TO_END};
        explore(n + 1, after, switches, kills);
        const uint32_t points = search.end.points[n];
        for (uint32_t i = 1; i < points && !ends(); i++) {
            search.turns[n] = (struct schedule_turn){.task = (uint8_t)task, .points = i};
            if (switches > 0)
                explore(n + 1, over, switches - 1, kills);
            search.turns[n].kills = true;
            if (kills)
                explore(n + 1, after, switches, false);
        }
    }
}

/* Other keys have all places for blocked ones: no owner that is stuck can be displaced. */
static void take_blocks(void)
{
    for (uint32_t key = 1000; key < 2000; key++) {
        struct hash128 hash = table_block_hash(world.on.table, &key, sizeof(key));
        table_block(world.on.table, hash, BEGIN_NS + 1000 * SCHEDULED_HOUR_NS, BEGIN_NS);
    }
}

static unsigned first_way(const struct stint_quota *quota, uint32_t key)
{
    struct hash128 hash = table_hash(world.on.table, quota, &key, sizeof(key));
    return slots_first_way(slots_home(&world.on.table->slots[CLASS_8], hash).tag);
}

/* Other keys leave the last place of the second half of the only set, or of either half. */
static void fill_places(struct stint_quota quota, bool leaves_two)
{
    unsigned left[2] = {HALF_WAYS - leaves_two, HALF_WAYS - 1};
    quota.rule = 0;
    quota.period_ns *= 1000;
    if (stint_quota_check(&quota, NULL) != 0)
        exit(1);
    for (uint32_t key = 1000; left[0] + left[1] > 0; key++) {
        unsigned *of_half = &left[first_way(&quota, key) / HALF_WAYS];
        if (*of_half == 0)
            continue;
        stint_take(world.on.table, &quota, &key, sizeof(key), 1, BEGIN_NS);
        --*of_half;
    }
}

/* The next key that first looks for a place in the second half. */
static uint32_t key_after(uint32_t key)
{
    do
        key++;
    while (first_way(&world.on.quotas[0], key) != HALF_WAYS);
    return key;
}

static void open_world(const struct play *play)
{
    static const struct stint_table_options options = {.keys = 2,
                                                       .keys16 = 2,
                                                       .keys_wide = 2,
                                                       .wide_size = 256,
                                                       .tickets = 4,
                                                       .blocks = 4,
                                                       .quotas = 4,
                                                       .skew_max_ns = SKEW_MAX_NS,
                                                       .hash_key = {7, 1},
                                                       .clock = STINT_CLOCK_VIRTUAL};
    world.play = play;
    world.n_tasks = 0;
    while (world.n_tasks < SCHEDULE_TASKS_MAX && play->asks[world.n_tasks] != NULL)
        world.n_tasks++;
    schedule_boot();
    scheduled_open(&world.on, &options, play->specs);
    for (unsigned i = 0; i < world.on.n_quotas && (play->happens & APART) != 0; i++)
        world.on.quotas[i].rule = 0;
    world.key = key_after(0);
    world.other_key = key_after(world.key);
    if (play->happens & BLOCKED)
        take_blocks();
    for (unsigned i = 0; i < world.on.n_quotas && (play->happens & (ONE_PLACE | TWO_PLACES)); i++)
        fill_places(world.on.quotas[i], (play->happens & TWO_PLACES) != 0);
    scheduled_make_tasks(&world.on, world.n_tasks);
    /* Each process knows all quotas, so that only the region changes. */
    for (unsigned i = 0; i < world.on.n_quotas; i++) {
        intern_id(&world.on.table->intern, &world.on.quotas[i]);
        for (unsigned task = 0; task < world.n_tasks; task++)
            intern_id(&world.on.tasks[task].table.intern, &world.on.quotas[i]);
    }
    const struct region *region = &world.on.table->region;
    world.fresh = malloc(region->fixed.bytes);
    if (world.fresh == NULL)
        exit(1);
    memcpy(world.fresh, region->header, region->fixed.bytes);
    schedule_watch(region->header, region->fixed.bytes);
}

static bool run(const struct play *play, unsigned switches)
{
    failed = false;
    open_world(play);
    do {
        search.n = 0;
        search.end.has_new_points = false;
        explore(0, 0, switches, (play->happens & KILLS) != 0);
    } while (search.end.has_new_points && !failed);
    printf("%s: %u switches, %llu schedules%s\n", play->name, switches,
           (unsigned long long)search.n, failed ? ", the last of which fails" : "");
    fflush(stdout);
    free(world.fresh);
    scheduled_close(&world.on, world.n_tasks);
    return !failed;
}

#define WINDOW8 "window 2/1h resolution=12"
#define WINDOW16 "window 2/1h"
#define LOG "log 2/1h"

/* Name, specs, what each task asks, switches, and what happens. */
static const struct play plays[] = {
    {"8 bytes", {WINDOW8}, {"00", "00"}, 3, KILLS},
    {"16 bytes", {WINDOW16}, {"00", "00"}, 3, KILLS},
    {"wide", {LOG}, {"00", "00"}, 2, KILLS},
    {"8 bytes, three tasks", {WINDOW8}, {"0", "0", "0"}, 3, 0},
    {"16 bytes, three tasks", {WINDOW16}, {"0", "0", "0"}, 3, 0},
    {"wide, three tasks", {LOG}, {"0", "0", "0"}, 2, 0},
    {"8 bytes, two places", {WINDOW8}, {"00", "00"}, 3, KILLS | TWO_PLACES},
    {"16 bytes, two places", {WINDOW16}, {"00", "00"}, 3, KILLS | TWO_PLACES},
    {"wide, two places", {LOG}, {"00", "00"}, 2, KILLS | TWO_PLACES},
    {"8 bytes, one place", {WINDOW8}, {"0+0", "o+o"}, 3, KILLS | ONE_PLACE},
    {"16 bytes, one place", {WINDOW16}, {"0+0", "o+o"}, 3, KILLS | ONE_PLACE},
    {"wide, one place", {LOG}, {"0+0", "o+o"}, 2, KILLS | ONE_PLACE},
    {"wide, one place, three tasks", {LOG}, {"0", "o", "00"}, 3, ONE_PLACE},
    {"8 bytes, later", {WINDOW8}, {"0+0", "0+0"}, 3, KILLS},
    {"16 bytes, later", {WINDOW16}, {"0+0", "0+0"}, 3, KILLS},
    {"wide, later", {LOG}, {"0+0", "0+0"}, 2, KILLS},
    {"8 bytes, late", {WINDOW8}, {"00>0", "0><0"}, 3, KILLS},
    {"16 bytes, late", {WINDOW16}, {"00>0", "0><0"}, 3, KILLS},
    {"wide, late", {LOG}, {"00>0", "0><0"}, 2, KILLS},
    {"8 bytes, parameters", {WINDOW8, "window 2/1h resolution=10"}, {"00", "11"}, 3, KILLS},
    {"16 bytes, parameters", {WINDOW16, "window 2/1h resolution=20"}, {"00", "11"}, 3, KILLS},
    {"wide, parameters", {LOG, "buckets 2/1h time_slack=10m"}, {"00", "11"}, 2, KILLS},
    {"moves 8 and 16", {WINDOW8, WINDOW16}, {"00", "11"}, 2, KILLS},
    {"moves 8 and more", {WINDOW8, LOG}, {"00", "11"}, 2, KILLS},
    {"moves 16 and more", {WINDOW16, LOG}, {"00", "11"}, 2, KILLS},
    {"moves, three tasks", {WINDOW8, WINDOW16, LOG}, {"0", "1", "2"}, 2, 0},
    {"moves 8 and 16, late", {WINDOW8, WINDOW16}, {"0>1", "00><1"}, 2, 0},
    {"moves 8 and more, late", {WINDOW8, LOG}, {"0>1", "00><1"}, 2, 0},
    {"moves 16 and more, late", {WINDOW16, LOG}, {"0>1", "00><1"}, 2, 0},
    {"moves 8 and 16, peeks", {WINDOW8, WINDOW16}, {"00>b", "><01"}, 2, 0},
    {"moves 8 and more, peeks", {WINDOW8, LOG}, {"11>a", "><10"}, 2, 0},
    {"moves 16 and more, peeks", {WINDOW16, LOG}, {"11>a", "><10"}, 2, 0},
    {"8 bytes, found", {WINDOW8, "window 2/1h resolution=10"}, {"0f", "1"}, 3, 0},
    {"16 bytes, found", {WINDOW16, "window 2/1h resolution=20"}, {"0f", "1"}, 3, 0},
    {"wide, found", {LOG, "buckets 2/1h time_slack=10m"}, {"0f", "1"}, 2, 0},
    {"carried, 8 bytes", {"gcra 4/1h", "window 4/1h resolution=12"}, {"0s", "00"}, 2, APART},
    {"carried, 16 bytes", {"window 4/1h", "gcra 4/1h"}, {"0s", "00"}, 2, APART},
    {"carried, wide", {"log 4/1h", "window 4/1h"}, {"0s", "00"}, 2, APART},
    {"carried to wide", {"window 4/1h", "log 4/1h"}, {"0s", "00"}, 2, APART},
    {"booked", {"gcra 1/1h"}, {"kk", "rk"}, 3, 0},
    {"booked under a rule", {"gcra 1/1h", "window 1/1h"}, {"kk", "rk"}, 2, 0},
    {"lists, 8 bytes", {WINDOW8}, {"l0", "ll"}, 2, 0},
    {"lists, 16 bytes", {WINDOW16}, {"l0", "ll"}, 2, 0},
    {"lists, 8 bytes, killed", {WINDOW8}, {"l", "l0"}, 1, KILLS},
    {"lists, 16 bytes, killed", {WINDOW16}, {"l", "l0"}, 1, KILLS},
    {"lists, wide", {LOG}, {"l0", "ll"}, 1, KILLS},
    {"tickets, 8 bytes", {WINDOW8}, {"t0", "00"}, 2, KILLS},
    {"tickets, 16 bytes", {WINDOW16}, {"t0", "00"}, 2, KILLS},
    {"tickets, wide", {LOG}, {"t0", "00"}, 2, KILLS},
    {"wide, no place for blocks", {LOG}, {"00", "00"}, 2, KILLS | BLOCKED},
    {"moves 16 and more, no place for blocks", {WINDOW16, LOG}, {"0", "11"}, 2, KILLS | BLOCKED},
};

int main(int argc, char **argv)
{
    unsigned most = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof(plays) / sizeof(plays[0]); i++) {
        const struct play *play = &plays[i];
        bool is_less = most > 0 && most < play->switches;
        if (argc > 2 && strstr(play->name, argv[2]) == NULL)
            continue;
        if (!run(play, is_less ? most : play->switches))
            return 1;
        n += search.n;
    }
    printf("%llu schedules\n", (unsigned long long)n);
    return 0;
}
