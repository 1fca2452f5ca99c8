/* SPDX-License-Identifier: MIT */
/*
 * The names of states in a shared store: PREFIX{TAG}ALGORITHM:RULE:KEY; the rule decides which part
 * of the key is in the braces. Values are joined by commas, and a comma in one is escaped, so that
 * two lists of values never share a name.
 */
#ifndef STINT_BACKEND_STORE_KEY_H
#define STINT_BACKEND_STORE_KEY_H

#include "decide/backend.h"

/* The escaping there: a byte that is no letter, digit or one of -._~/@+=:* becomes %XX. */
size_t store_key_escape(struct span text, char *out, size_t size);

/*
 * Returns the length; if that is more than `size`, what was written is incomplete. The prefix is
 * escaped already. *tag_len: of the bytes at the front that end with the tag's brace.
 */
size_t store_key(const struct backend_item *item, struct span prefix, char *out, size_t size,
                 size_t *tag_len);

/* The key of an id beside a state, in its slot: HEAD is the state's key up to the tag's brace. */
#define STORE_ID_KEY_MORE (3 + 2 * BACKEND_ID_LEN)
size_t store_id_key(struct span head, const uint8_t id[BACKEND_ID_LEN], char *out, size_t size);

#endif
