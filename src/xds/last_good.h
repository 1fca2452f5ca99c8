/* SPDX-License-Identifier: MIT */
/*
 * What control planes sent last and was accepted, as bytes of a file: a restart begins with it
 * while they cannot be reached. The file has two slots of fixed position. A write goes to the slot
 * that is older, and its head, with a checksum, comes last: a kill at any time leaves one whole.
 */
#ifndef STINT_XDS_LAST_GOOD_H
#define STINT_XDS_LAST_GOOD_H

#include "base/err.h"
#include "base/span.h"
#include "xds/xds_url.h"

#include <stdbool.h>

/* The accepted DiscoveryResponse of a control plane, by its URL. */
struct last_good {
    struct span url, message;
};

#define LAST_GOOD_HEAD 64                    /* bytes of a slot's head */
#define LAST_GOOD_SLOT (UINT64_C(128) << 20) /* bytes from the start of one slot to the next's */
#define LAST_GOOD_SLOTS 2

/* ---- The content of a slot ---- */

/* Bytes that last_good_write() needs at most. */
size_t last_good_size(const struct last_good *all, size_t n);
/* Writes the content at the end of `bytes`. */
struct span last_good_write(const struct last_good *all, size_t n, uint8_t *bytes, size_t size);
/*
 * Reads it; spans point into the content. STINT_E_SYNTAX: it is malformed. At most XDS_SOURCES_MAX
 * are read; further ones are skipped.
 */
int last_good_read(struct span content, struct last_good all[XDS_SOURCES_MAX], size_t *n,
                   struct stint_error *error);

/* ---- The head of a slot ---- */

struct last_good_head {
    uint64_t sequence; /* the higher one is newer; from 1 */
    uint64_t len;      /* of the content, which follows */
};

void last_good_write_head(uint8_t bytes[LAST_GOOD_HEAD], uint64_t sequence, struct span content);
/* False: no head, or of another version. The content is checked afterwards. */
bool last_good_read_head(const uint8_t bytes[LAST_GOOD_HEAD], struct last_good_head *head);
/* Whether the head belongs to this content. */
bool last_good_is_whole(const uint8_t bytes[LAST_GOOD_HEAD], struct span content);

#endif
