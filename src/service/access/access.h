/* SPDX-License-Identifier: MIT */
/*
 * The tokens of a file: each has a name, its roles and the SHA-256 of a secret.
 *
 *     # NAME ROLE[,ROLE] sha256:HEX
 *     shop       ask sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
 *     operations administer,metrics sha256:…
 *
 * A secret is 256 random bits (access_secret_new), not a password. Slow, salted hashes make
 * guessing expensive; 2^256 secrets cannot be guessed, and equal secrets do not occur. So one round
 * of SHA-256 protects the file as well, and costs a request 300 ns.
 *
 * A set of tokens is immutable; any number of threads may read it. The last access_unref() frees
 * it, and every token found in it.
 */
#ifndef STINT_SERVICE_ACCESS_ACCESS_H
#define STINT_SERVICE_ACCESS_ACCESS_H

#include "base/span.h"
#include "stint.h"

enum access_role {
    ACCESS_ASK = 1,        /* decisions: take, peek, settle, … and pools */
    ACCESS_ADMINISTER = 2, /* block, reset, quotas of keys, reload; nothing of ACCESS_ASK */
    ACCESS_METRICS = 4,    /* /metrics, /v1/stats, STINT.TOP */
};
#define ACCESS_ALL (ACCESS_ASK | ACCESS_ADMINISTER | ACCESS_METRICS)

#define ACCESS_NAME_MAX 64       /* bytes: letters, digits and . _ - */
#define ACCESS_TOKENS_MAX 1000   /* each search compares all of them */
#define ACCESS_SECRET_MIN 32     /* bytes of a secret that `stint token hash` accepts */
#define ACCESS_SECRET_SIZE 50    /* of the text of a new secret, with its terminator */
#define ACCESS_HASH_TEXT_SIZE 72 /* "sha256:", 64 digits, a terminator */

struct access_token {
    const char *name;
    unsigned roles; /* bits of enum access_role */
};

struct access;
struct metrics_worker;

/*
 * Parses the tokens of a file's text; the set has one reference. STINT_E_SYNTAX for a line that
 * cannot be parsed, a name or a secret that occurs twice, or no token at all: the message begins
 * "PATH:LINE: ".
 */
int access_load(struct access **access, const char *path, struct span text,
                struct stint_error *error);
struct access *access_ref(struct access *access);
void access_unref(struct access *access); /* NULL is allowed */

/*
 * Returns the token of a secret, or NULL. Where a name is given, it must be that token's. The
 * duration depends on the number of tokens, not on how similar a secret is to one of them.
 */
const struct access_token *access_find(const struct access *access, struct span name,
                                       struct span secret);

/*
 * For a client that authenticated with an older set: returns the token with the same name and
 * secret in this set, or NULL where it was removed.
 */
const struct access_token *access_again(const struct access *access,
                                        const struct access_token *token);

/* Writes "ask,metrics", the names of the roles, to `text`, which holds ACCESS_ROLES_SIZE bytes. */
#define ACCESS_ROLES_SIZE 32
void access_roles_text(unsigned roles, char text[ACCESS_ROLES_SIZE]);
/* Parses the same text: role bits, or 0 for an unknown role or an empty text. */
unsigned access_roles_parse(struct span text);
bool access_name_is_valid(struct span name);

/* A new secret, printable: "stint_" and 256 random bits. False if the system has none. */
bool access_secret_new(char text[ACCESS_SECRET_SIZE]);
/* "sha256:…" of a secret, as in the file. */
void access_hash_text(struct span secret, char text[ACCESS_HASH_TEXT_SIZE]);

/*
 * The set in force, for a server that reloads it. Any thread may call set(), which takes over the
 * caller's reference. A reader keeps a reference of its own, and renews it before each request: one
 * load, unless the set has changed.
 */
struct access_now;

struct access_now *
access_now_new(struct access *access);        /* takes over the reference; may be NULL */
void access_now_free(struct access_now *now); /* NULL is allowed */
/* Restricts clients without a token, where there are no tokens, to these roles. Call it first. */
void access_now_set_anonymous(struct access_now *now, unsigned roles);
/* The roles of such a client: ACCESS_ALL unless they were restricted, or `now` is NULL. */
unsigned access_now_anonymous(const struct access_now *now);
void access_now_set(struct access_now *now, struct access *access);
/*
 * True where *access was replaced: now it is the set in force, with a reference; NULL: no tokens.
 * *generation belongs to it; UINT64_MAX: of no set yet. `now` of NULL never has tokens.
 */
bool access_now_renew(struct access_now *now, struct access **access, uint64_t *generation);

#define ACCESS_PEER_MAX 46 /* bytes of an address as text */
/* Copies an address; text that is longer than an address gives "". Returns its length. */
static inline uint8_t access_keep_peer(char to[ACCESS_PEER_MAX], struct span peer)
{
    size_t len = peer.len <= ACCESS_PEER_MAX ? peer.len : 0;
    if (len > 0)
        memcpy(to, peer.ptr, len);
    return (uint8_t)len;
}

/* ---- Secrets from clients -------------------------------------------------------------------- */

struct access_guess_options {
    /* Wrong secrets per minute of one address until its secrets are not checked; 0: no limit */
    unsigned per_minute;
    /* A secret was wrong, or was not checked; `address`: "192.0.2.7", "2001:db8::",
     * "unix". Any thread */
    void (*refused)(void *arg, const char *address, const char *frontend);
    void *arg;
};
/* Call before the first login; without it wrong secrets are not counted. False: no memory. */
bool access_now_count_guesses(struct access_now *now, const struct access_guess_options *options);

/* The text after "Bearer ", in any case, of the field Authorization; NULL ptr: none. */
struct span access_bearer_secret(struct span authorization);

struct access_login {
    struct span name, secret;
    struct span peer;               /* its address as text; empty: a Unix socket */
    uint8_t frontend;               /* enum metrics_frontend */
    struct metrics_worker *metrics; /* NULL: not counted */
    uint64_t now_ns;
};
/*
 * As access_find(), for a client. It also returns NULL, and sets *is_slowed, where the address has
 * sent too many wrong secrets.
 */
const struct access_token *access_login(struct access_now *now, const struct access *access,
                                        const struct access_login *login, bool *is_slowed);

#endif
