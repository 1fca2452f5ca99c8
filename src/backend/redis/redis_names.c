/* SPDX-License-Identifier: MIT */
/* Names of all items, then space for that of an id, then for that of leases. */
#include "backend/redis/redis_names.h"

#include "backend/redis/cluster.h"
#include "backend/script/script.h"
#include "backend/store_key.h"
#include "base/wide_int.h"

#include <stdlib.h>

bool redis_names_reserve(struct redis_names *names, size_t size)
{
    if (size <= names->size)
        return true;
    uint8_t *text = realloc(names->text, 2 * size);
    if (text == NULL)
        return false;
    names->text = text;
    names->size = 2 * size;
    return true;
}

size_t redis_names_write(struct redis_names *names, struct span prefix,
                         const struct backend_request *ask, struct redis_named *named)
{
    size_t at = 0, id_len = 0, leases_len = 0;
    for (size_t i = 0; i < ask->n_items;) {
        size_t left = names->size - at;
        size_t len =
            store_key(&ask->items[i], prefix, (char *)names->text + at, left, &named[i].tag_len);
        if (len > left) { /* once more, with enough space */
            if (!redis_names_reserve(names, at + len))
                return 0;
            continue;
        }
        named[i].at = at;
        if (ask->id != NULL)
            id_len = max_u64(id_len, named[i].tag_len + STORE_ID_KEY_MORE);
        named[i].is_leased = script_is_leased(&ask->items[i]);
        if (named[i].is_leased)
            leases_len = max_u64(leases_len, len + strlen(SCRIPT_LEASES_SUFFIX));
        named[i++].len = len;
        at += len;
    }
    names->len = at;
    names->leases_at = at + id_len;
    return redis_names_reserve(names, names->leases_at + leases_len) ? at : 0;
}

struct span redis_names_key(const struct redis_names *names, const struct redis_named *named)
{
    return span_of(names->text + named->at, named->len);
}

void redis_names_part_id(uint8_t own[BACKEND_ID_LEN], const uint8_t id[BACKEND_ID_LEN],
                         uint8_t turn)
{
    memcpy(own, id, BACKEND_ID_LEN);
    own[BACKEND_ID_LEN - 1] ^= turn;
}

struct span redis_names_id(struct redis_names *names, const struct redis_named *named,
                           const uint8_t id[BACKEND_ID_LEN])
{
    uint8_t *out = names->text + names->len, own[BACKEND_ID_LEN];
    struct span head = span_of(names->text + named->at, named->tag_len);
    redis_names_part_id(own, id, named->turn);
    return span_of(out, store_id_key(head, own, (char *)out, head.len + STORE_ID_KEY_MORE));
}

struct span redis_names_leases(struct redis_names *names, struct span state)
{
    uint8_t *out = names->text + names->leases_at;
    memcpy(out, state.ptr, state.len);
    memcpy(out + state.len, SCRIPT_LEASES_SUFFIX, strlen(SCRIPT_LEASES_SUFFIX));
    return span_of(out, state.len + strlen(SCRIPT_LEASES_SUFFIX));
}

/* Whether the part has the key of the item under another quota. */
static bool has_other_quota(const struct redis_names *names, const struct redis_named *named,
                            const struct backend_request *ask, size_t i, size_t part)
{
    const uint64_t *params = ask->items[i].quota->derived.params_hash;
    const struct span key = redis_names_key(names, &named[i]);
    for (size_t j = 0; j < i; j++)
        if (named[j].part == part && named[j].len == key.len &&
            memcmp(names->text + named[j].at, key.ptr, key.len) == 0 &&
            ask->items[j].quota->derived.params_hash[0] != params[0])
            return true;
    return false;
}

size_t redis_names_parts(const struct redis_names *names, struct router *router,
                         const struct backend_request *ask, struct redis_named *named,
                         uint64_t *servers, uint64_t now_ns)
{
    size_t n_parts = 0;
    unsigned slots[BACKEND_ITEMS_MAX];
    bool has_slots = router_has_slots(router);
    *servers = 0;
    for (size_t i = 0; i < ask->n_items; i++) {
        size_t part = 0;
        named[i].slot = has_slots ? cluster_slot_of(redis_names_key(names, &named[i])) : 0;
        named[i].turn = 0;
        for (; part < n_parts; part++) {
            bool is_slot = slots[part] == named[i].slot;
            if (is_slot && !has_other_quota(names, named, ask, i, part))
                break;
            named[i].turn = (uint8_t)(named[i].turn + is_slot);
        }
        if (part == n_parts)
            slots[n_parts++] = named[i].slot;
        named[i].part = (uint8_t)part;
        named[i].server = router_server_bit(router, named[i].slot, now_ns);
        *servers |= named[i].server;
    }
    return n_parts;
}
