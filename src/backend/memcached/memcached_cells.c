/* SPDX-License-Identifier: MIT */
/*
 * A cell is a key with waiting decisions. It reads, then writes, and starts again while decisions
 * wait: after a conflicting write, and when its connection is back. A write without an answer may
 * have been done, so the decisions in it get the result "lost".
 *
 * Turns at keys of memcached that several stores want to change at once. A swap succeeds only if no
 * other store swaps between its read and its write, so a store nearer to memcached leaves no gap
 * for one that is farther. The farther store requests gaps, in a key beside the state. The others
 * then rest after each of their swaps, so that it can read the state meanwhile; and a state that
 * another store has read is not swapped before a random time of up to some gaps.
 *
 * All of it is advice: only the swap decides, nothing here can grant a unit, and a store that is
 * gone, or requests gaps without end, costs the others 20 ms a swap at most. One thread.
 * docs/decisions/0050.
 */
#include "backend/memcached/memcached_cells.h"

#include "backend/memcached/memcached_backend.h"
#include "base/ns.h"
#include "base/siphash.h"
#include "base/splitmix.h"
#include "base/wide_int.h"

#include <assert.h>
#include <stdlib.h>

/* ---- Cells ----------------------------------------------------------------------------------- */

#define BEATS_KEPT 10 /* beats until a wrong clock that is right again is forgotten */
#define BINS 1024
#define DECIDED_BYTES_MAX (1u << 20) /* of states, on one read */
#define TURNS_MAX 256
#define TURN_REQUEST_TTL_S 2         /* of a request for gaps */
#define REMEMBERED_NS (2 * NS_PER_S) /* contention, and requests */
/* A store may read its own request; memcached counts whole seconds. */
#define OWN_NS ((TURN_REQUEST_TTL_S + 1) * NS_PER_S + REMEMBERED_NS)
#define SOON_NS (10 * NS_PER_MS) /* a store that rests longer leaves enough gaps */
#define LOSSES_MIN 2             /* one may be chance */
#define LOSSES_DOUBLE 4          /* lost swaps until the gap counts as too short */
#define GAP_MAX_NS (5 * NS_PER_MS)
#define WAIT_GAPS 4
#define FULL_NS NS_PER_MS /* until a connection without space is tried again */

enum cell_state {
    CELL_WAITING, /* for the connection, or for space in it */
    CELL_ASKING,  /* memcached */
    CELL_RESTING, /* while other stores have their turn */
    CELL_ANSWERING,
};

struct cell {
    struct cell *next; /* in its bin */
    struct cells *cells;
    struct memcached_key key;
    unsigned server;
    enum cell_state state;
    uint64_t name;                 /* a hash of its key */
    uint64_t asked_ns, replied_ns; /* memcached, the last time */
    uint64_t due_ns;       /* of the swap; 0: there is none to be made, as far as is known */
    uint64_t rest_ends_ns; /* of WAITING and RESTING: when it begins again */
    bool is_repairing;     /* the write replaces a damaged state */
    struct memcached_closed closing; /* by what is written */
    bool may_be_read;                /* by another store, which is about to swap it */
    struct cell_ask *first, *last;
};

/* The data on one key. */
struct turn {
    uint64_t name;                   /* a hash of it; 0: unused */
    uint64_t won_ns;                 /* the last swap that succeeded */
    uint64_t gap_ends_ns;            /* behind it */
    uint64_t contended_ns;           /* until then, requests for the key are read */
    uint64_t heard_ns, heard_gap_ns; /* the last request that was read; 0: none */
    uint64_t asked_ns, asked_gap_ns; /* the last request of this store; 0: none */
    uint32_t lost;                   /* swaps since the last that succeeded */
    bool is_unread;                  /* not read since the last swap that succeeded */
    bool is_listening;               /* a read of its requests is in progress */
};

/* Zero it, and seed `random`. */
struct turns {
    struct turn each[TURNS_MAX];
    uint64_t random;
};

struct cells {
    const struct memcached_backend_options *options;
    struct memcached_metrics *metrics;
    size_t prefix_len; /* of all keys */
    struct {
        struct memcached_conn *conn; /* of the server that has the key */
        unsigned server;
        struct memcached_key key;
        uint64_t next_ns;     /* the next check */
        uint64_t reported_ns; /* the largest that was reported */
        uint64_t random;
        uint8_t bytes[8]; /* what is written */
        bool is_asking;
    } clock;
    struct cell *bins[BINS];
    size_t n_cells;
    uint64_t rest_ends_ns; /* no rest ends earlier */
    struct turns turns;
    struct stint_error *fault;    /* why the last request was refused or lost */
    struct memcached_state state; /* read last: it is large, and only one is needed at a time */
};

static void cell_begin(struct cell *cell, uint64_t now_ns);

/* ---- The clocks of the nodes ----------------------------------------------------------------- */

/*
 * How far the nodes' clocks differ, as far as memcached can show. One key has the latest time that
 * any node had at its check; a node that finds a later time than its own is behind by at least so
 * much. Checks repeat at random times, because the result is too small by the age of the value.
 */

static uint64_t read_time(struct span value)
{
    uint64_t time = 0;
    for (size_t i = 0; i < value.len; i++)
        time = time << 8 | value.ptr[i];
    return time;
}

static void note_skew(struct cells *cells, uint64_t skew_ns)
{
    if (skew_ns > cells->metrics->skew_ns)
        cells->metrics->skew_ns = skew_ns;
    /* Once for each doubling, so that reports do not repeat. */
    if (skew_ns <= cells->options->skew_max_ns || skew_ns / 2 < cells->clock.reported_ns)
        return;
    cells->clock.reported_ns = skew_ns;
    cells->options->io->ops->skewed(cells->options->io, skew_ns);
}

static void clock_written(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                          uint64_t now_ns)
{
    struct cells *cells = arg;
    (void)outcome, (void)reply, (void)now_ns;
    cells->clock.is_asking = false;
}

static void clock_ask(struct cells *cells, struct memcached_command *command, uint64_t now_ns)
{
    command->key = span_of(cells->clock.key.text, cells->clock.key.len);
    command->arg = cells;
    cells->clock.is_asking = memcached_conn_ask(cells->clock.conn, command, now_ns);
    if (cells->clock.is_asking)
        cells->options->io->ops->asked(cells->options->io, cells->clock.server);
}

static void write_time(struct cells *cells, uint64_t wall_ns, uint64_t number, uint64_t now_ns)
{
    struct memcached_command command = {
        .verb = number > 0 ? MEMCACHED_SWAP : MEMCACHED_ADD,
        .value = span_of(cells->clock.bytes, sizeof(cells->clock.bytes)),
        .number = number,
        .ttl_s = 2 + BEATS_KEPT * cells->options->beat_ns / NS_PER_S,
        .answered = clock_written,
    };
    for (size_t i = sizeof(cells->clock.bytes); i > 0; i--, wall_ns >>= 8)
        cells->clock.bytes[i - 1] = (uint8_t)wall_ns;
    clock_ask(cells, &command, now_ns);
}

static void clock_read(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                       uint64_t now_ns)
{
    struct cells *cells = arg;
    uint64_t wall_ns = cells->options->io->ops->wall(cells->options->io);
    cells->clock.is_asking = false;
    if (outcome != LINK_DONE)
        return;
    if (reply->code == MEMCACHED_MISS) {
        write_time(cells, wall_ns, 0, now_ns);
        return;
    }
    uint64_t latest_ns =
        reply->value.len == sizeof(cells->clock.bytes) ? read_time(reply->value) : 0;
    if (latest_ns > wall_ns)
        note_skew(cells, latest_ns - wall_ns);
    else if (reply->number > 0)
        write_time(cells, wall_ns, reply->number, now_ns);
}

static uint64_t clock_deadline(const struct cells *cells)
{
    return link_is_ready(memcached_conn_link(cells->clock.conn)) ? cells->clock.next_ns
                                                                 : STINT_NEVER_NS;
}

/* The first check is as soon as the connection is ready. */
static void clock_wake(struct cells *cells, uint64_t now_ns)
{
    struct memcached_command command = {.verb = MEMCACHED_GET, .answered = clock_read};
    if (clock_deadline(cells) > now_ns)
        return;
    cells->clock.next_ns = now_ns + cells->options->beat_ns / 2 +
                           splitmix_next(&cells->clock.random) % (cells->options->beat_ns + 1);
    if (!cells->clock.is_asking)
        clock_ask(cells, &command, now_ns);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static bool is_within(uint64_t length_ns, uint64_t at_ns, uint64_t now_ns)
{
    return at_ns != 0 && now_ns - at_ns < length_ns;
}

static bool is_needed(const struct turn *turn, uint64_t now_ns)
{
    return turn->is_listening || turn->contended_ns > now_ns;
}

/* NULL: nothing is known of it. */
static struct turn *turns_find(struct turns *turns, uint64_t name)
{
    struct turn *turn = &turns->each[name % TURNS_MAX];
    return turn->name == name && name != 0 ? turn : NULL;
}

/* Makes one. NULL: none is free, and the key goes without. */
static struct turn *turns_keep(struct turns *turns, uint64_t name, uint64_t now_ns)
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
 * another store reads its new value before it does, others do want it. Returns whether another
 * store may have read the state.
 */
static bool turn_read(struct turn *turn, bool was_read, uint64_t now_ns)
{
    if (turn->is_unread && was_read && now_ns - turn->won_ns < SOON_NS)
        turn->contended_ns = now_ns + REMEMBERED_NS;
    turn->is_unread = false;
    return was_read; /* once it has read the state itself, it cannot detect other readers */
}

/* The swap took so long. Returns the gap to request now; 0: none. */
static uint64_t turn_lost(struct turn *turn, uint64_t took_ns, uint64_t now_ns)
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

/* A store whose own request is equal or larger is one of those that need the gap. */
static uint64_t gap_of(const struct turn *turn, uint64_t now_ns)
{
    bool is_own =
        is_within(OWN_NS, turn->asked_ns, now_ns) && turn->asked_gap_ns >= turn->heard_gap_ns;
    bool is_heard = is_within(REMEMBERED_NS, turn->heard_ns, now_ns);
    return is_heard && !is_own ? turn->heard_gap_ns : 0;
}

static void turns_won(struct turns *turns, struct turn *turn, uint64_t now_ns)
{
    turn->won_ns = now_ns;
    turn->gap_ends_ns = now_ns + splitmix_next(&turns->random) % (gap_of(turn, now_ns) + 1);
    turn->is_unread = true;
    turn->lost = 0;
}

/* How long to wait before the swap of a state that another may have read. */
static uint64_t turns_wait_ns(struct turns *turns, const struct turn *turn, uint64_t now_ns)
{
    return splitmix_next(&turns->random) % (WAIT_GAPS * gap_of(turn, now_ns) + 1);
}

/* ---- Start and end --------------------------------------------------------------------------- */

struct cells *cells_new(const struct memcached_backend_options *options,
                        struct memcached_metrics *metrics, struct stint_error *fault,
                        struct span prefix)
{
    struct cells *cells = calloc(1, sizeof(*cells));
    if (cells == NULL)
        return NULL;
    cells->options = options;
    cells->metrics = metrics;
    cells->fault = fault;
    cells->prefix_len = prefix.len;
    struct memcached_key *clock = &cells->clock.key;
    memcpy(clock->text, prefix.ptr, prefix.len);
    memcpy(clock->text + prefix.len, "{clock}", 7);
    clock->len = prefix.len + 7;
    cells->clock.server = memcached_key_server(options->url, span_of(clock->text, clock->len));
    cells->clock.conn = options->conns[cells->clock.server];
    cells->clock.random = options->io->ops->wall(options->io);
    cells->turns.random = options->seed;
    cells->rest_ends_ns = STINT_NEVER_NS;
    return cells;
}

/* ---- The cells ------------------------------------------------------------------------------- */

static uint64_t name_of(struct span key)
{
    static const uint64_t secret[2] = {0}; /* there are as few cells as requests */
    return siphash13_128(secret, 0, key.ptr, key.len).lo;
}

static struct span key_of(const struct cell *cell)
{
    return span_of(cell->key.text, cell->key.len);
}

static struct cell *cell_find(struct cell *cell, const struct memcached_key *key)
{
    while (cell != NULL &&
           (cell->key.len != key->len || memcmp(cell->key.text, key->text, key->len) != 0))
        cell = cell->next;
    return cell;
}

static void cell_drop(struct cell *cell)
{
    struct cell **at = &cell->cells->bins[cell->name % BINS];
    while (*at != cell)
        at = &(*at)->next;
    *at = cell->next;
    cell->cells->n_cells--;
    free(cell);
}

static void cell_append(struct cell *cell, struct cell_ask *ask, uint64_t now_ns)
{
    ask->next = NULL;
    ask->began_ns = now_ns;
    ask->has_lost = false;
    ask->cell = cell;
    ask->is_decided = ask->is_due = ask->is_withdrawn = false;
    *(cell->first != NULL ? &cell->last->next : &cell->first) = ask;
    cell->last = ask;
}

bool cells_ask(struct cells *cells, unsigned server, const struct memcached_key *key,
               struct cell_ask *ask, uint64_t now_ns)
{
    uint64_t name = name_of(span_of(key->text, key->len));
    struct cell **bin = &cells->bins[name % BINS];
    struct cell *cell = cell_find(*bin, key);
    if (cell != NULL) {
        cell_append(cell, ask, now_ns);
        return true;
    }
    cell = calloc(1, sizeof(*cell));
    if (cell == NULL)
        return false;
    *cell =
        (struct cell){.next = *bin, .cells = cells, .key = *key, .server = server, .name = name};
    *bin = cell;
    cells->n_cells++;
    cell_append(cell, ask, now_ns);
    cell_begin(cell, now_ns);
    return true;
}

/*
 * A cell that has lost swaps at a responsive memcached waits for its turn. Half of its time is the
 * limit for that: memcached may have stopped answering.
 */
enum cell_wait cells_wait(const struct cell_ask *ask, uint64_t now_ns)
{
    const struct cell *cell = ask->cell;
    if (cell == NULL || cell->state == CELL_WAITING)
        return CELL_WAITS_FOR_CONNECTION;
    bool is_silent = sub_floor(now_ns, cell->replied_ns) > (now_ns - ask->began_ns) / 2;
    return cell->state == CELL_RESTING || (ask->has_lost && !is_silent) ? CELL_WAITS_FOR_TURN
                                                                        : CELL_WAITS_FOR_REPLY;
}

void cells_forget(struct cell_ask *ask)
{
    struct cell *cell = ask->cell;
    struct cell_ask **at = &cell->first, *before = NULL;
    while (*at != ask) {
        before = *at;
        at = &before->next;
    }
    *at = ask->next;
    if (cell->last == ask)
        cell->last = before;
    ask->cell = NULL;
    if (cell->first == NULL && (cell->state == CELL_WAITING || cell->state == CELL_RESTING))
        cell_drop(cell);
}

bool cells_withdraw(struct cell_ask *ask)
{
    ask->is_withdrawn = ask->cell->state == CELL_ASKING && ask->is_decided;
    if (!ask->is_withdrawn)
        cells_forget(ask);
    return ask->is_withdrawn;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* A callback may add decisions to this cell, or cancel others that wait for it. */
static void answer_due(struct cell *cell, uint64_t now_ns)
{
    cell->state = CELL_ANSWERING;
    /* Decided ones are at the front: decisions are made in the order of requests. */
    for (struct cell_ask *ask = cell->first; ask != NULL && ask->is_due; ask = cell->first) {
        cells_forget(ask);
        ask->answered(ask, (enum cell_outcome)ask->outcome, now_ns);
    }
    cell_begin(cell, now_ns);
}

static void answer_all(struct cell *cell, enum cell_outcome outcome, bool decided, uint64_t now_ns)
{
    for (struct cell_ask *ask = cell->first; ask != NULL; ask = ask->next) {
        if (decided && !ask->is_decided)
            continue;
        ask->outcome = (uint8_t)outcome;
        ask->is_due = true;
    }
    answer_due(cell, now_ns);
}

/* The decision was not written; it is made again. */
static void cell_begin_again(struct cell *cell, uint64_t now_ns)
{
    for (struct cell_ask *ask = cell->first; ask != NULL; ask = ask->next)
        ask->is_decided = false;
    cell_begin(cell, now_ns);
}

static void set_fault(struct cells *cells, const struct memcached_reply *reply)
{
    err_set(cells->fault, STINT_E_SYSTEM, "memcached: %.*s",
            reply->value.len < 200 ? (int)reply->value.len : 200, (const char *)reply->value.ptr);
}

static void answer_decided(struct cell *cell, uint64_t now_ns)
{
    for (struct cell_ask *ask = cell->first; ask != NULL; ask = ask->next)
        ask->is_due = ask->is_decided;
    answer_due(cell, now_ns);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static bool cell_send(struct cell *cell, struct memcached_command *command, uint64_t now_ns)
{
    const struct memcached_backend_options *options = cell->cells->options;
    command->key = key_of(cell);
    command->arg = cell;
    cell->asked_ns = now_ns;
    if (!memcached_conn_ask(options->conns[cell->server], command, now_ns))
        return false;
    cell->state = CELL_ASKING;
    options->io->ops->asked(options->io, cell->server);
    return true;
}

/* ---- Turns of a cell ------------------------------------------------------------------------- */

/* The key beside a state for requests of gaps. No state has this name. False: it is too long. */
static bool name_request(const struct cell *cell, struct memcached_key *key)
{
    size_t prefix_len = cell->cells->prefix_len;
    if (cell->key.len == sizeof(key->text))
        return false;
    memcpy(key->text, cell->key.text, prefix_len);
    key->text[prefix_len] = '!';
    memcpy(key->text + prefix_len + 1, cell->key.text + prefix_len, cell->key.len - prefix_len);
    key->len = cell->key.len + 1;
    return true;
}

static void take_request(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                         uint64_t now_ns)
{
    struct turn *turn = arg;
    uint64_t gap_ns = 0;
    turn->is_listening = false;
    if (outcome != LINK_DONE || reply->code != MEMCACHED_VALUE || reply->value.len != 4)
        return;
    for (size_t i = 0; i < reply->value.len; i++)
        gap_ns = gap_ns << 8 | reply->value.ptr[i];
    /* Another store, or this one, has requested a gap. */
    turn->heard_ns = now_ns;
    turn->heard_gap_ns = min_u64(gap_ns, GAP_MAX_NS);
}

/* Together with a swap, so that it costs no time. */
static void read_request(struct cell *cell, uint64_t now_ns)
{
    const struct memcached_backend_options *options = cell->cells->options;
    struct turn *turn = turns_find(&cell->cells->turns, cell->name);
    struct memcached_key key;
    if (turn == NULL || turn->is_listening || turn->contended_ns <= now_ns ||
        !name_request(cell, &key))
        return;
    turn->is_listening = memcached_conn_ask(options->conns[cell->server],
                                            &(struct memcached_command){
                                                .verb = MEMCACHED_GET,
                                                .key = span_of(key.text, key.len),
                                                .answered = take_request,
                                                .arg = turn,
                                            },
                                            now_ns);
}

static void take_nothing(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                         uint64_t now_ns)
{
    (void)arg, (void)outcome, (void)reply, (void)now_ns;
}

static void request_gaps(const struct cell *cell, uint64_t gap_ns, uint64_t now_ns)
{
    const struct memcached_backend_options *options = cell->cells->options;
    const uint8_t value[4] = {(uint8_t)(gap_ns >> 24), (uint8_t)(gap_ns >> 16),
                              (uint8_t)(gap_ns >> 8), (uint8_t)gap_ns};
    struct memcached_key key;
    if (!name_request(cell, &key))
        return;
    (void)memcached_conn_ask(options->conns[cell->server],
                             &(struct memcached_command){
                                 .verb = MEMCACHED_SET,
                                 .key = span_of(key.text, key.len),
                                 .value = span_of(value, sizeof(value)),
                                 .ttl_s = TURN_REQUEST_TTL_S,
                                 .answered = take_nothing,
                             },
                             now_ns);
}

static void note_damage(const struct cells *cells)
{
    uint64_t states = ++cells->metrics->damaged;
    if ((states & (states - 1)) == 0)
        cells->options->io->ops->damaged(cells->options->io, states);
}

static void note_closed(struct memcached_metrics *metrics, const struct memcached_closed *closed)
{
    metrics->expired_floor += closed->expired[STINT_EXPIRY_FLOOR];
    metrics->expired_release += closed->expired[STINT_EXPIRY_RELEASE];
    metrics->expiry_kept_units += closed->kept_units;
    metrics->tickets_dropped += closed->dropped;
}

static void cell_won(struct cell *cell, uint64_t now_ns)
{
    struct turn *turn = turns_keep(&cell->cells->turns, cell->name, now_ns);
    if (cell->is_repairing)
        note_damage(cell->cells);
    note_closed(cell->cells->metrics, &cell->closing);
    if (turn != NULL)
        turns_won(&cell->cells->turns, turn, now_ns);
    cell->due_ns = 0;
    answer_decided(cell, now_ns);
}

static void cell_lost(struct cell *cell, uint64_t now_ns)
{
    struct turn *turn = turns_keep(&cell->cells->turns, cell->name, now_ns);
    uint64_t gap_ns = turn != NULL ? turn_lost(turn, now_ns - cell->asked_ns, now_ns) : 0;
    cell->cells->metrics->conflicts++;
    for (struct cell_ask *ask = cell->first; ask != NULL; ask = ask->next)
        ask->has_lost = true;
    if (gap_ns > 0)
        request_gaps(cell, gap_ns, now_ns);
    cell_begin_again(cell, now_ns);
}

/* At most half of the time that the first waiting decision has left. */
static uint64_t rest_until(const struct cell *cell, uint64_t at_ns, uint64_t now_ns)
{
    return min_u64(at_ns, now_ns + sub_floor(cell->first->deadline_ns, now_ns) / 2);
}

static void pause_until(struct cell *cell, enum cell_state state, uint64_t ends_ns)
{
    struct cells *cells = cell->cells;
    cell->state = state;
    cell->rest_ends_ns = ends_ns;
    if (ends_ns >= cells->rest_ends_ns)
        return;
    cells->rest_ends_ns = ends_ns;
    cells->options->io->ops->hurry(cells->options->io);
}

/* The state is read afterwards. */
static void cell_rest(struct cell *cell, uint64_t ends_ns)
{
    for (struct cell_ask *ask = cell->first; ask != NULL; ask = ask->next)
        ask->is_decided = false;
    pause_until(cell, CELL_RESTING, ends_ns);
}

/* A connection that is ready has no space for the command, but soon will. */
static void wait_for_connection(struct cell *cell, uint64_t now_ns)
{
    const struct memcached_backend_options *options = cell->cells->options;
    bool is_full = link_is_ready(memcached_conn_link(options->conns[cell->server]));
    pause_until(cell, CELL_WAITING, is_full ? now_ns + FULL_NS : STINT_NEVER_NS);
}

/* True: it is another store's turn to swap. */
static bool must_rest(struct cell *cell, uint64_t now_ns)
{
    struct turns *turns = &cell->cells->turns;
    struct turn *turn = turns_find(turns, cell->name);
    if (cell->due_ns == 0 && turn != NULL && cell->may_be_read)
        cell->due_ns = rest_until(cell, now_ns + turns_wait_ns(turns, turn, now_ns), now_ns);
    if (cell->due_ns <= now_ns)
        return false;
    cell_rest(cell, cell->due_ns);
    return true;
}

/* ---- Writes ---------------------------------------------------------------------------------- */

static void take_written(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                         uint64_t now_ns)
{
    struct cell *cell = arg;
    struct memcached_metrics *metrics = cell->cells->metrics;
    cell->replied_ns = now_ns;
    switch (outcome) {
    case LINK_DONE:
        if (reply->code == MEMCACHED_STORED)
            cell_won(cell, now_ns);
        else
            cell_lost(cell, now_ns);
        return;
    case LINK_REFUSED:
        set_fault(cell->cells, reply);
        answer_all(cell, CELL_REFUSED, true, now_ns);
        return;
    case LINK_UNSENT:
        cell_begin_again(cell, now_ns);
        return;
    default:
        metrics->lost++;
        err_set(cell->cells->fault, STINT_E_GONE, "memcached did not confirm the write of a state");
        answer_all(cell, outcome == LINK_LATE ? CELL_LATE : CELL_LOST, true, now_ns);
    }
}

static void write_state(struct cell *cell, struct memcached_state *state,
                        const struct cell_ask *last, uint64_t number, uint64_t now_ns)
{
    cell->is_repairing = state->was_damaged;
    cell->closing = state->closed;
    struct memcached_command command = {
        .verb = number > 0 ? MEMCACHED_SWAP : MEMCACHED_ADD,
        .value = span_of(state->bytes, state->len),
        .number = number,
        .ttl_s = memcached_state_ttl_s(state, &last->step, cell->cells->options->skew_max_ns),
        .answered = take_written,
    };
    read_request(cell, now_ns);
    if (!cell_send(cell, &command, now_ns))
        cell_begin_again(cell, now_ns);
}

/* ---- Deciding -------------------------------------------------------------------------------- */

/* False: nothing has changed. */
static bool cell_decide(struct cell_ask *ask, struct memcached_state *state, uint64_t wall_ns,
                        struct stint_error *error)
{
    bool had_changed = state->has_changed;
    ask->is_decided = true;
    ask->outcome = CELL_REFUSED;
    if (ask->is_withdrawn)
        return false;
    state->has_changed = false;
    if (!ask->step.is_virtual)
        ask->step.now_ns = wall_ns;
    int code = memcached_state_ask(state, &ask->step, &ask->decision, error);
    ask->count = state->count;
    if (ask->step.verb == STINT_PEEK && code == 0) {
        struct memcached_step at_rest = ask->step;
        at_rest.cost = 0;
        code = memcached_state_ask(state, &at_rest, &ask->at_rest, error);
    }
    ask->at_ns = ask->step.now_ns;
    ask->outcome = code == 0 ? CELL_DECIDED : code == STINT_E_GONE ? CELL_GONE : CELL_UNUSABLE;
    bool has_changed = state->has_changed;
    state->has_changed |= had_changed;
    return has_changed;
}

/*
 * For all waiting decisions, up to one that forgets the key, and within this number of bytes: with
 * a large state the others are decided on the next read, after a turn of the loop.
 */
static void cell_decide_all(struct cell *cell, struct memcached_state *state, uint64_t number,
                            uint64_t now_ns)
{
    const struct memcached_backend_options *options = cell->cells->options;
    uint64_t wall_ns = options->io->ops->wall(options->io);
    const struct cell_ask *last = NULL;
    size_t work = 0;
    for (struct cell_ask *ask = cell->first;
         ask != NULL && !ask->is_reset && work < DECIDED_BYTES_MAX; ask = ask->next) {
        if (cell_decide(ask, state, wall_ns, cell->cells->fault))
            last = ask;
        work += state->len;
    }
    if (last == NULL) {
        cell->due_ns = 0;
        answer_decided(cell, now_ns);
    } else if (!must_rest(cell, now_ns))
        write_state(cell, state, last, number, now_ns);
}

static void cell_refuse(struct cell *cell, const char *why, uint64_t now_ns)
{
    err_set(cell->cells->fault, STINT_E_MISMATCH, "%s", why);
    answer_all(cell, CELL_REFUSED, false, now_ns);
}

static void take_read(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                      uint64_t now_ns)
{
    struct cell *cell = arg;
    struct memcached_state *state = &cell->cells->state;
    struct turn *turn = turns_find(&cell->cells->turns, cell->name);
    cell->replied_ns = now_ns;
    if (turn != NULL && outcome == LINK_DONE)
        cell->may_be_read = turn_read(turn, reply->was_read, now_ns);
    if (outcome == LINK_REFUSED) {
        set_fault(cell->cells, reply);
        answer_all(cell, CELL_REFUSED, false, now_ns);
    } else if (outcome != LINK_DONE)
        cell_begin(cell, now_ns); /* nothing was done: it waits for the connection */
    else if (reply->code == MEMCACHED_MISS) {
        memcached_state_forget(state);
        cell_decide_all(cell, state, 0, now_ns);
    } else if (reply->number == 0)
        cell_refuse(cell, "memcached has no CAS numbers: start it without -C", now_ns);
    else {
        memcached_state_read(state, reply->value);
        cell_decide_all(cell, state, reply->number, now_ns);
    }
}

static void take_forgotten(void *arg, enum link_outcome outcome,
                           const struct memcached_reply *reply, uint64_t now_ns)
{
    if (outcome == LINK_DONE)
        answer_decided(arg, now_ns);
    else
        take_written(arg, outcome, reply, now_ns);
}

/* ---- From its beginning ---------------------------------------------------------------------- */

static bool send_delete(struct cell *cell, uint64_t now_ns)
{
    struct memcached_command command = {.verb = MEMCACHED_DELETE, .answered = take_forgotten};
    const struct memcached_backend_options *options = cell->cells->options;
    for (struct cell_ask *ask = cell->first; ask != NULL && ask->is_reset; ask = ask->next) {
        uint32_t capacity = most_units(ask->step.quota);
        ask->decision = (struct stint_decision){
            .outcome = STINT_ALLOW, .stored = 1, .limit = capacity, .remaining = capacity};
        ask->at_ns = ask->step.is_virtual ? ask->step.now_ns : options->io->ops->wall(options->io);
        ask->outcome = CELL_DECIDED;
        ask->is_decided = true;
    }
    return cell_send(cell, &command, now_ns);
}

static bool send_read(struct cell *cell, uint64_t now_ns)
{
    struct memcached_command command = {.verb = MEMCACHED_GET, .answered = take_read};
    return cell_send(cell, &command, now_ns);
}

static void cell_begin(struct cell *cell, uint64_t now_ns)
{
    const struct turn *turn = turns_find(&cell->cells->turns, cell->name);
    uint64_t gap_ends_ns = turn != NULL ? turn->gap_ends_ns : 0;
    if (cell->first == NULL)
        cell_drop(cell);
    else if (!cell->first->is_reset && rest_until(cell, gap_ends_ns, now_ns) > now_ns)
        cell_rest(cell, rest_until(cell, gap_ends_ns, now_ns));
    else if (!(cell->first->is_reset ? send_delete(cell, now_ns) : send_read(cell, now_ns)))
        wait_for_connection(cell, now_ns);
}

uint64_t cells_deadline(const struct cells *cells)
{
    return min_u64(cells->rest_ends_ns, clock_deadline(cells));
}

/* A callback of a starting cell may add decisions: only those that are ready to begin do. */
void cells_wake(struct cells *cells, bool has_connected, uint64_t now_ns)
{
    bool rests_end = cells->rest_ends_ns <= now_ns;
    if (rests_end)
        cells->rest_ends_ns = STINT_NEVER_NS;
    clock_wake(cells, now_ns);
    for (size_t i = 0; (has_connected || rests_end) && i < BINS && cells->n_cells > 0; i++)
        for (struct cell *cell = cells->bins[i], *next; cell != NULL; cell = next) {
            next = cell->next;
            bool is_paused = cell->state == CELL_WAITING || cell->state == CELL_RESTING;
            if ((cell->state == CELL_WAITING && has_connected) ||
                (is_paused && cell->rest_ends_ns <= now_ns))
                cell_begin(cell, now_ns);
            else if (is_paused)
                cells->rest_ends_ns = min_u64(cells->rest_ends_ns, cell->rest_ends_ns);
        }
}
