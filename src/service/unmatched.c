/* SPDX-License-Identifier: MIT */
#include "service/server_state.h"

#include "base/siphash.h"
#include "base/wide_int.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct unmatched_list {
    uint64_t ids[UNMATCHED_MAX]; /* atomic; 0: free */
    struct unmatched_name names[UNMATCHED_MAX];
    size_t n, n_given;
};

struct unmatched {
    pthread_mutex_t lock;
    uint64_t generation;
    struct unmatched_list lists[UNMATCHED_KINDS];
};

struct unmatched *unmatched_new(void)
{
    struct unmatched *unmatched = calloc(1, sizeof(*unmatched));
    if (unmatched != NULL)
        pthread_mutex_init(&unmatched->lock, NULL);
    return unmatched;
}

void unmatched_free(struct unmatched *unmatched)
{
    if (unmatched == NULL)
        return;
    pthread_mutex_destroy(&unmatched->lock);
    free(unmatched);
}

static uint64_t id_of(enum unmatched_kind kind, struct span domain,
                      const struct descriptor *descriptor)
{
    assert(kind < UNMATCHED_KINDS);
    /* No secret: names chosen to collide cost one line of the log. */
    static const uint64_t no_secret[2] = {0, 0};
    uint64_t id = siphash13_128(no_secret, kind, domain.ptr, domain.len).lo;
    for (size_t i = 0; kind == UNMATCHED_DESCRIPTOR && i < descriptor->n_entries; i++)
        id = siphash13_128(no_secret, id, descriptor->entries[i].key.ptr,
                           descriptor->entries[i].key.len)
                 .lo;
    return id | (id == 0);
}

/* Also true where no slot is free: then the name is not recorded. */
static bool is_known(const struct unmatched_list *list, uint64_t id)
{
    assert(id != 0);
    for (size_t i = 0; i < UNMATCHED_MAX; i++) {
        /* relaxed: at worst the lock is taken to find that it is there. */
        uint64_t other = __atomic_load_n(&list->ids[i], __ATOMIC_RELAXED);
        if (other == id || other == 0)
            return other == id;
    }
    return true;
}

/* Up to the size of the text. */
static void append(char text[UNMATCHED_TEXT_MAX + 1], struct span more)
{
    size_t len = strlen(text), n = min_u64(more.len, UNMATCHED_TEXT_MAX - len);
    if (n > 0)
        memcpy(text + len, more.ptr, n);
}

static void add_name(struct unmatched_list *list, uint64_t id, enum unmatched_kind kind,
                     struct span domain, const struct descriptor *descriptor)
{
    assert(list->n < UNMATCHED_MAX && list->n_given <= list->n);
    struct unmatched_name *name = &list->names[list->n];
    *name = (struct unmatched_name){.id = id, .kind = (uint8_t)kind};
    append(name->domain, domain);
    for (size_t i = 0; kind == UNMATCHED_DESCRIPTOR && i < descriptor->n_entries; i++) {
        append(name->keys, span_of(".", i > 0 ? 1 : 0));
        append(name->keys, descriptor->entries[i].key);
    }
    name->is_last = list->n + 1 == UNMATCHED_MAX;
    __atomic_store_n(&list->ids[list->n++], id, __ATOMIC_RELAXED);
}

void unmatched_note(struct unmatched *unmatched, enum unmatched_kind kind, struct span domain,
                    const struct descriptor *descriptor)
{
    assert(kind < UNMATCHED_KINDS && descriptor != NULL);
    struct unmatched_list *list = &unmatched->lists[kind];
    uint64_t id = id_of(kind, domain, descriptor);
    if (is_known(list, id))
        return;
    pthread_mutex_lock(&unmatched->lock);
    if (!is_known(list, id))
        add_name(list, id, kind, domain, descriptor);
    pthread_mutex_unlock(&unmatched->lock);
}

/* Under new rules all names may be reported again. */
static void forget(struct unmatched *unmatched)
{
    for (size_t kind = 0; kind < UNMATCHED_KINDS; kind++) {
        struct unmatched_list *list = &unmatched->lists[kind];
        for (size_t i = 0; i < UNMATCHED_MAX; i++)
            __atomic_store_n(&list->ids[i], 0, __ATOMIC_RELAXED);
        list->n = list->n_given = 0;
    }
}

bool unmatched_next(struct unmatched *unmatched, uint64_t generation, struct unmatched_name *name)
{
    assert(name != NULL);
    bool has_one = false;
    pthread_mutex_lock(&unmatched->lock);
    if (unmatched->generation != generation)
        forget(unmatched);
    unmatched->generation = generation;
    for (size_t kind = 0; kind < UNMATCHED_KINDS && !has_one; kind++) {
        struct unmatched_list *list = &unmatched->lists[kind];
        assert(list->n_given <= list->n && list->n <= UNMATCHED_MAX);
        has_one = list->n_given < list->n;
        if (has_one)
            *name = list->names[list->n_given++];
    }
    pthread_mutex_unlock(&unmatched->lock);
    return has_one;
}
