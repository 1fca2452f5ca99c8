/* SPDX-License-Identifier: MIT */
/*
 * A cell is a key that somebody waits for. It reads, then writes, and as long as anybody waits it
 * begins again: after another's write, and when its connection is back. A write whose answer did
 * not come may have been done, so those whose decisions were in it hear that it was lost.
 */
#include "remote/memcached_cells.h"

#include "base/siphash.h"

#include <assert.h>
#include <stdlib.h>

#define BINS 1024

enum cell_state {
    CELL_WAITING, /* for the connection */
    CELL_ASKING,  /* memcached */
    CELL_ANSWERING,
};

struct cell {
    struct cell *next; /* in its bin */
    struct cells *cells;
    struct memcached_key key;
    unsigned server;
    enum cell_state state;
    struct cell_ask *first, *last;
};

struct cells {
    struct cells_options options;
    struct cell *bins[BINS];
    size_t n_cells;
    struct stint_error fault;
};

static void begin(struct cell *cell, uint64_t now_ns);

struct cells *cells_new(const struct cells_options *options)
{
    struct cells *cells = calloc(1, sizeof(*cells));
    if (cells != NULL)
        cells->options = *options;
    return cells;
}

void cells_free(struct cells *cells)
{
    assert(cells == NULL || cells->n_cells == 0);
    free(cells);
}

const char *cells_fault(const struct cells *cells)
{
    return cells->fault.sentence;
}

/* ---- The cells ------------------------------------------------------------------------------- */

static struct cell **bin_of(struct cells *cells, struct span key)
{
    static const uint64_t secret[2] = {0}; /* there are as few cells as there are asks */
    return &cells->bins[siphash13_128(secret, 0, key.ptr, key.len).lo % BINS];
}

static struct span key_of(const struct cell *cell)
{
    return span_of(cell->key.text, cell->key.len);
}

static struct cell *find(struct cell *cell, const struct memcached_key *key)
{
    while (cell != NULL &&
           (cell->key.len != key->len || memcmp(cell->key.text, key->text, key->len) != 0))
        cell = cell->next;
    return cell;
}

static void drop(struct cell *cell)
{
    struct cell **at = bin_of(cell->cells, key_of(cell));
    while (*at != cell)
        at = &(*at)->next;
    *at = cell->next;
    cell->cells->n_cells--;
    free(cell);
}

static void append(struct cell *cell, struct cell_ask *ask)
{
    ask->next = NULL;
    ask->cell = cell;
    ask->is_decided = ask->is_due = false;
    *(cell->first != NULL ? &cell->last->next : &cell->first) = ask;
    cell->last = ask;
}

bool cells_ask(struct cells *cells, unsigned server, const struct memcached_key *key,
               struct cell_ask *ask, uint64_t now_ns)
{
    struct cell **bin = bin_of(cells, span_of(key->text, key->len));
    struct cell *cell = find(*bin, key);
    if (cell != NULL) {
        append(cell, ask);
        return true;
    }
    cell = calloc(1, sizeof(*cell));
    if (cell == NULL)
        return false;
    *cell = (struct cell){.next = *bin, .cells = cells, .key = *key, .server = server};
    *bin = cell;
    cells->n_cells++;
    append(cell, ask);
    begin(cell, now_ns);
    return true;
}

bool cells_is_asking(const struct cell_ask *ask)
{
    return ask->cell != NULL && ask->cell->state == CELL_ASKING;
}

void cells_forget(struct cells *cells, struct cell_ask *ask)
{
    struct cell *cell = ask->cell;
    struct cell_ask **at = &cell->first, *before = NULL;
    (void)cells;
    while (*at != ask) {
        before = *at;
        at = &before->next;
    }
    *at = ask->next;
    if (cell->last == ask)
        cell->last = before;
    ask->cell = NULL;
    if (cell->first == NULL && cell->state == CELL_WAITING)
        drop(cell);
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* Whoever is called may ask this cell again, or forget others who wait for it. */
static void answer_due(struct cell *cell, uint64_t now_ns)
{
    cell->state = CELL_ANSWERING;
    /* Those who are due stand in front: decisions are made in the order of asks. */
    for (struct cell_ask *ask; (ask = cell->first) != NULL && ask->is_due;) {
        cells_forget(cell->cells, ask);
        ask->answered(ask, (enum cell_outcome)ask->outcome, now_ns);
    }
    begin(cell, now_ns);
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

/* What was decided was not written; it is decided again. */
static void begin_again(struct cell *cell, uint64_t now_ns)
{
    for (struct cell_ask *ask = cell->first; ask != NULL; ask = ask->next)
        ask->is_decided = false;
    begin(cell, now_ns);
}

static void set_fault(struct cells *cells, const struct memcached_reply *reply)
{
    err_set(&cells->fault, STINT_E_SYSTEM, "memcached: %.*s",
            reply->value.len < 200 ? (int)reply->value.len : 200, (const char *)reply->value.ptr);
}

static void answer_decided(struct cell *cell, uint64_t now_ns)
{
    for (struct cell_ask *ask = cell->first; ask != NULL; ask = ask->next)
        ask->is_due = ask->is_decided;
    answer_due(cell, now_ns);
}

/* ---- Writing --------------------------------------------------------------------------------- */

static bool send(struct cell *cell, struct memcached_command *command, uint64_t now_ns)
{
    const struct cells_options *options = &cell->cells->options;
    command->key = key_of(cell);
    command->arg = cell;
    if (!memcached_conn_ask(options->conns[cell->server], command, now_ns))
        return false;
    cell->state = CELL_ASKING;
    options->io->ops->asked(options->io, cell->server);
    return true;
}

static void take_written(void *arg, enum memcached_outcome outcome,
                         const struct memcached_reply *reply, uint64_t now_ns)
{
    struct cell *cell = arg;
    struct memcached_figures *figures = cell->cells->options.figures;
    switch (outcome) {
    case MEMCACHED_DONE:
        if (reply->code == MEMCACHED_STORED) {
            answer_decided(cell, now_ns);
            return;
        }
        figures->conflicts++;
        begin_again(cell, now_ns);
        return;
    case MEMCACHED_REFUSED:
        set_fault(cell->cells, reply);
        answer_all(cell, CELL_REFUSED, true, now_ns);
        return;
    case MEMCACHED_UNSENT:
        begin_again(cell, now_ns);
        return;
    default:
        figures->lost++;
        err_set(&cell->cells->fault, STINT_E_GONE,
                "memcached did not say whether it has written a state");
        answer_all(cell, outcome == MEMCACHED_LATE ? CELL_LATE : CELL_LOST, true, now_ns);
    }
}

static void write_state(struct cell *cell, const struct memcached_state *state,
                        const struct cell_ask *last, uint64_t number, uint64_t now_ns)
{
    struct memcached_command command = {
        .verb = number > 0 ? MEMCACHED_SWAP : MEMCACHED_ADD,
        .value = span_of(state->bytes, state->len),
        .number = number,
        .ttl_s = memcached_state_ttl_s(state, &last->step, cell->cells->options.skew_max_ns),
        .answered = take_written,
    };
    if (!send(cell, &command, now_ns))
        begin_again(cell, now_ns);
}

/* ---- Deciding -------------------------------------------------------------------------------- */

/* False: nothing has changed. */
static bool decide(struct cell_ask *ask, struct memcached_state *state, uint64_t wall_ns,
                   struct stint_error *error)
{
    const struct memcached_state before = *state;
    if (!ask->step.is_virtual)
        ask->step.now_ns = wall_ns;
    int code = memcached_state_ask(state, &ask->step, &ask->decision, error);
    if (ask->step.verb == STINT_PEEK && code == 0) {
        struct memcached_step at_rest = ask->step;
        at_rest.cost = 0;
        code = memcached_state_ask(state, &at_rest, &ask->at_rest, error);
    }
    ask->at_ns = ask->step.now_ns;
    ask->outcome = code == 0 ? CELL_DECIDED : CELL_REFUSED;
    ask->is_decided = true;
    return state->len != before.len || memcmp(state->bytes, before.bytes, state->len) != 0;
}

/* For all who wait, up to one who wants the key forgotten. */
static void decide_all(struct cell *cell, struct memcached_state *state, uint64_t number,
                       uint64_t now_ns)
{
    const struct cells_options *options = &cell->cells->options;
    uint64_t wall_ns = options->io->ops->wall(options->io);
    const struct cell_ask *last = NULL;
    for (struct cell_ask *ask = cell->first; ask != NULL && !ask->is_reset; ask = ask->next)
        if (decide(ask, state, wall_ns, &cell->cells->fault))
            last = ask;
    if (last == NULL)
        answer_decided(cell, now_ns);
    else
        write_state(cell, state, last, number, now_ns);
}

static void refuse(struct cell *cell, const char *why, uint64_t now_ns)
{
    err_set(&cell->cells->fault, STINT_E_MISMATCH, "%s", why);
    answer_all(cell, CELL_REFUSED, false, now_ns);
}

static void take_read(void *arg, enum memcached_outcome outcome,
                      const struct memcached_reply *reply, uint64_t now_ns)
{
    struct cell *cell = arg;
    struct memcached_state state = {.len = 0};
    if (outcome == MEMCACHED_REFUSED) {
        set_fault(cell->cells, reply);
        answer_all(cell, CELL_REFUSED, false, now_ns);
    } else if (outcome != MEMCACHED_DONE)
        begin(cell, now_ns); /* nothing was done: it waits for the connection */
    else if (reply->code == MEMCACHED_MISS)
        decide_all(cell, &state, 0, now_ns);
    else if (reply->number == 0)
        refuse(cell, "memcached runs without the numbers of values: expected it without -C",
               now_ns);
    else if (!memcached_state_read(&state, reply->value))
        refuse(cell, "a key of memcached's holds what is no state", now_ns);
    else
        decide_all(cell, &state, reply->number, now_ns);
}

static void take_forgotten(void *arg, enum memcached_outcome outcome,
                           const struct memcached_reply *reply, uint64_t now_ns)
{
    if (outcome == MEMCACHED_DONE)
        answer_decided(arg, now_ns);
    else
        take_written(arg, outcome, reply, now_ns);
}

/* ---- From its beginning ---------------------------------------------------------------------- */

static bool forget_key(struct cell *cell, uint64_t now_ns)
{
    struct memcached_command command = {.verb = MEMCACHED_DELETE, .answered = take_forgotten};
    const struct cells_options *options = &cell->cells->options;
    for (struct cell_ask *ask = cell->first; ask != NULL && ask->is_reset; ask = ask->next) {
        uint32_t capacity = law_capacity(ask->step.quota);
        ask->decision = (struct stint_decision){
            .outcome = STINT_ALLOW, .stored = 1, .limit = capacity, .remaining = capacity};
        ask->at_ns = ask->step.is_virtual ? ask->step.now_ns : options->io->ops->wall(options->io);
        ask->outcome = CELL_DECIDED;
        ask->is_decided = true;
    }
    return send(cell, &command, now_ns);
}

static void begin(struct cell *cell, uint64_t now_ns)
{
    struct memcached_command read = {.verb = MEMCACHED_GET, .answered = take_read};
    cell->state = CELL_WAITING;
    if (cell->first == NULL)
        drop(cell);
    else if (cell->first->is_reset)
        (void)forget_key(cell, now_ns);
    else
        (void)send(cell, &read, now_ns);
}

void cells_go_on(struct cells *cells, uint64_t now_ns)
{
    for (size_t i = 0; i < BINS && cells->n_cells > 0; i++)
        for (struct cell *cell = cells->bins[i], *next; cell != NULL; cell = next) {
            next = cell->next;
            if (cell->state == CELL_WAITING)
                begin(cell, now_ns);
        }
}
