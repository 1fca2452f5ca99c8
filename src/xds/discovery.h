/* SPDX-License-Identifier: MIT */
/*
 * The messages of envoy.service.discovery.v3, state of the world: the request that subscribes,
 * accepts or refuses, and the response with all resources.
 */
#ifndef STINT_XDS_DISCOVERY_H
#define STINT_XDS_DISCOVERY_H

#include "base/err.h"
#include "base/span.h"
#include "rules/arena.h"
#include "rules/yaml/rules_load.h"

#define DISCOVERY_TEXT_MAX 1024       /* bytes of a version, and of a nonce */
#define DISCOVERY_RESOURCES_MAX 10000 /* in one response */

/* Who asks. All is borrowed. */
struct discovery_node {
    const char *id;
    const char *const *metadata; /* KEY=VALUE, n_metadata of them */
    size_t n_metadata;
};

struct discovery_request {
    struct discovery_node node;
    struct span version; /* accepted last. Empty: none */
    struct span nonce;   /* of the response that it answers. Empty: it subscribes */
    const char *refusal; /* why the response was refused. NULL: it was accepted */
};

/* Writes a request at the end of `bytes`, which have at least discovery_request_size(). */
size_t discovery_request_size(const struct discovery_request *request);
struct span discovery_request_write(const struct discovery_request *request, uint8_t *bytes,
                                    size_t size);

/* Spans into the message. */
struct discovery_response {
    struct span version, nonce;
};

/* STINT_E_SYNTAX: bytes that are no response; STINT_E_RANGE: a version or nonce is too long. */
int discovery_response_read(struct span message, struct discovery_response *response,
                            struct stint_error *error);

/*
 * The resources of a response as files for rules_load(); their paths begin with `url` and are in
 * the arena, and their texts are in the message. Adds at most DISCOVERY_RESOURCES_MAX to `files`,
 * and none with a code.
 * STINT_E_SYNTAX: the response or a resource is of another type, or malformed; STINT_E_RANGE: too
 * many; STINT_E_SYSTEM: no memory.
 */
int discovery_files(struct span message, const char *url, struct arena *arena,
                    struct rules_file *files, size_t *n_files, struct stint_error *error);
/* How many resources it has; 0 also for a malformed message. */
size_t discovery_count(struct span message);
/* Whether two responses have the same resources, in the same order. */
bool discovery_is_same(struct span a, struct span b);

#endif
