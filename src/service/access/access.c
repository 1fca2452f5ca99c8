/* SPDX-License-Identifier: MIT */
/* Tokens: their file, the search for a secret, and the exchange of one set for another. */
#define _GNU_SOURCE
#include "service/access/access.h"

#include "base/err.h"
#include "base/ns.h"
#include "base/number.h"
#include "service/metrics/metrics.h"

#include <assert.h>
#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define HASH_PREFIX "sha256:"
#define ADDRESSES 16384 /* whose wrong secrets are counted */
#define ADDRESS_SIZE 64
#define DIGEST_SIZE 32

struct access_entry {
    struct access_token token; /* first: callers hold a pointer to it */
    char *name;
    uint32_t line;
    uint8_t digest[DIGEST_SIZE];
};

struct access {
    uint64_t references;
    struct access_entry *entries;
    size_t count;
};

/* For assertions. */
__attribute__((unused)) static bool is_valid(const struct access *access)
{
    return __atomic_load_n(&access->references, __ATOMIC_RELAXED) > 0 &&
           access->count <= ACCESS_TOKENS_MAX && (access->count == 0 || access->entries != NULL);
}

struct access *access_ref(struct access *access)
{
    assert(access == NULL || is_valid(access));
    if (access != NULL)
        /* relaxed: the caller already holds a reference, or the lock of access_now. */
        __atomic_fetch_add(&access->references, 1, __ATOMIC_RELAXED);
    return access;
}

void access_unref(struct access *access)
{
    assert(access == NULL || is_valid(access));
    /* acq_rel: what others did with the set comes before it is freed. */
    if (access == NULL || __atomic_sub_fetch(&access->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (size_t i = 0; i < access->count; i++)
        free(access->entries[i].name);
    free(access->entries);
    free(access);
}

static bool digest_of(struct span secret, uint8_t digest[DIGEST_SIZE])
{
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, secret.ptr, secret.len, digest) == 0;
}

const struct access_token *access_find(const struct access *access, struct span name,
                                       struct span secret)
{
    assert(is_valid(access));
    uint8_t digest[DIGEST_SIZE];
    const struct access_token *found = NULL;
    if (!digest_of(secret, digest))
        return NULL;
    /* Always searches to the end, also after a match: the duration does not show the position. */
    for (size_t i = 0; i < access->count; i++) {
        const struct access_entry *entry = &access->entries[i];
        bool same = gnutls_memcmp(entry->digest, digest, sizeof(digest)) == 0;
        if (same && (name.len == 0 || span_equals(name, entry->name)))
            found = &entry->token;
    }
    return found;
}

const struct access_token *access_again(const struct access *access,
                                        const struct access_token *token)
{
    assert(token != NULL && (access == NULL || is_valid(access)));
    const struct access_entry *old = (const struct access_entry *)token;
    for (size_t i = 0; access != NULL && i < access->count; i++) {
        const struct access_entry *entry = &access->entries[i];
        if (strcmp(entry->name, old->name) == 0)
            return gnutls_memcmp(entry->digest, old->digest, sizeof(old->digest)) == 0
                       ? &entry->token
                       : NULL;
    }
    return NULL;
}

bool access_secret_new(char text[ACCESS_SECRET_SIZE])
{
    /* 64 characters that need no escaping in a URL, a shell or a header field. */
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    static const char prefix[] = "stint_";
    uint8_t chance[43]; /* random, 6 bits of each: 258 in all */
    if (gnutls_rnd(GNUTLS_RND_KEY, chance, sizeof(chance)) != 0)
        return false;
    size_t len = strlen(prefix);
    memcpy(text, prefix, len);
    for (size_t i = 0; i < sizeof(chance); i++)
        text[len++] = digits[chance[i] & 63];
    assert(len < ACCESS_SECRET_SIZE);
    text[len] = '\0';
    gnutls_memset(chance, 0, sizeof(chance));
    return true;
}

void access_hash_text(struct span secret, char text[ACCESS_HASH_TEXT_SIZE])
{
    uint8_t digest[DIGEST_SIZE] = {0};
    digest_of(secret, digest);
    size_t len = strlen(HASH_PREFIX), size = ACCESS_HASH_TEXT_SIZE - len;
    memcpy(text, HASH_PREFIX, len);
    int code = gnutls_hex_encode(&(gnutls_datum_t){digest, sizeof(digest)}, text + len, &size);
    assert(code == 0);
    (void)code;
}

/* ---- The file -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned role;
} roles_known[] = {
    {"ask", ACCESS_ASK},
    {"administer", ACCESS_ADMINISTER},
    {"metrics", ACCESS_METRICS},
};
#define N_ROLES (sizeof(roles_known) / sizeof(roles_known[0]))

void access_roles_text(unsigned roles, char text[ACCESS_ROLES_SIZE])
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < N_ROLES; i++)
        if ((roles & roles_known[i].role) != 0)
            len += (size_t)snprintf(text + len, ACCESS_ROLES_SIZE - len, "%s%s", len > 0 ? "," : "",
                                    roles_known[i].name);
}

static unsigned role_named(struct span name)
{
    for (size_t i = 0; i < N_ROLES; i++)
        if (span_equals(name, roles_known[i].name))
            return roles_known[i].role;
    return 0;
}

/* Takes the bytes up to the first of `ends` off `rest`, together with that character. */
static struct span cut(struct span *rest, const char *ends)
{
    size_t len = 0;
    while (len < rest->len && (rest->ptr[len] == '\0' || strchr(ends, rest->ptr[len]) == NULL))
        len++;
    struct span part = span_of(rest->ptr, len);
    size_t taken = len < rest->len ? len + 1 : len;
    *rest = span_of(rest->ptr + taken, rest->len - taken);
    return part;
}

unsigned access_roles_parse(struct span text)
{
    unsigned roles = 0;
    for (bool more = true; more;) {
        more = text.len > 0 && memchr(text.ptr, ',', text.len) != NULL;
        unsigned role = role_named(cut(&text, ","));
        if (role == 0)
            return 0;
        roles |= role;
    }
    return roles;
}

bool access_name_is_valid(struct span name)
{
    static const char others[] = "._-";
    if (name.len == 0 || name.len > ACCESS_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        uint8_t c = name.ptr[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool is_digit = c >= '0' && c <= '9';
        if (!is_letter && !is_digit && (c == '\0' || strchr(others, c) == NULL))
            return false;
    }
    return true;
}

static bool parse_hash(struct span text, uint8_t digest[DIGEST_SIZE])
{
    size_t prefix = strlen(HASH_PREFIX);
    if (text.len != prefix + (size_t)2 * DIGEST_SIZE || memcmp(text.ptr, HASH_PREFIX, prefix) != 0)
        return false;
    for (size_t i = 0; i < DIGEST_SIZE; i++) {
        int high = number_hex_digit(text.ptr[prefix + 2 * i]);
        int low = number_hex_digit(text.ptr[prefix + 2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* The current line, for error messages. */
struct reading {
    const char *path;
    uint32_t line;
    struct access *access;
    struct stint_error *error;
};

static int fault(const struct reading *reading, const char *message)
{
    return err_set(reading->error, STINT_E_SYNTAX, "%s:%u: %s", reading->path, reading->line,
                   message);
}

/* The next word of a line; empty at its end. */
static struct span word(struct span *line)
{
    struct span found = cut(line, " \t\r");
    while (found.len == 0 && line->len > 0)
        found = cut(line, " \t\r");
    return found;
}

static int check_new(const struct reading *reading, struct span name,
                     const uint8_t digest[DIGEST_SIZE])
{
    const struct access *access = reading->access;
    for (size_t i = 0; i < access->count; i++) {
        const struct access_entry *entry = &access->entries[i];
        if (span_equals(name, entry->name))
            return err_set(reading->error, STINT_E_SYNTAX, "%s:%u: the name %s is also on line %u",
                           reading->path, reading->line, entry->name, entry->line);
        if (memcmp(entry->digest, digest, DIGEST_SIZE) == 0)
            return err_set(reading->error, STINT_E_SYNTAX,
                           "%s:%u: the same secret is also on line %u", reading->path,
                           reading->line, entry->line);
    }
    if (access->count == ACCESS_TOKENS_MAX)
        return err_set(reading->error, STINT_E_SYNTAX, "%s:%u: more than %d tokens", reading->path,
                       reading->line, ACCESS_TOKENS_MAX);
    return 0;
}

static int keep(const struct reading *reading, struct span name, unsigned roles,
                const uint8_t digest[DIGEST_SIZE])
{
    assert(is_valid(reading->access) && reading->access->count < ACCESS_TOKENS_MAX);
    struct access *access = reading->access;
    /* Allocates all at once with the first token: tokens are pointed to, and never move. */
    if (access->entries == NULL)
        access->entries = calloc(ACCESS_TOKENS_MAX, sizeof(*access->entries));
    char *copy = strndup((const char *)name.ptr, name.len);
    if (access->entries == NULL || copy == NULL) {
        free(copy);
        return err_set(reading->error, STINT_E_SYSTEM, "no memory for tokens");
    }
    struct access_entry *entry = &access->entries[access->count++];
    entry->token = (struct access_token){copy, roles};
    entry->name = copy;
    entry->line = reading->line;
    memcpy(entry->digest, digest, DIGEST_SIZE);
    return 0;
}

static int read_line(const struct reading *reading, struct span line)
{
    assert(reading->line > 0);
    uint8_t digest[DIGEST_SIZE];
    struct span name = word(&line);
    if (name.len == 0 || name.ptr[0] == '#')
        return 0;
    struct span role_words = word(&line), hash = word(&line), rest = word(&line);
    if (!access_name_is_valid(name))
        return fault(reading, "expected a name of 1 to 64 letters, digits and . _ -");
    unsigned roles = access_roles_parse(role_words);
    if (roles == 0)
        return fault(reading, "expected roles after the name: ask, administer or metrics, several "
                              "with commas between them");
    /* The message does not repeat the word: it may be a secret that was pasted by mistake. */
    if (!parse_hash(hash, digest))
        return fault(reading, "expected sha256: and 64 hexadecimal digits after the roles; `stint "
                              "token hash` makes them of a secret");
    if (rest.len > 0 && rest.ptr[0] != '#')
        return fault(reading, "expected nothing after the hash, or a comment that begins with #");
    int code = check_new(reading, name, digest);
    return code != 0 ? code : keep(reading, name, roles, digest);
}

int access_load(struct access **access, const char *path, struct span text,
                struct stint_error *error)
{
    assert(path != NULL);
    struct reading reading = {.path = path, .error = error};
    reading.access = calloc(1, sizeof(*reading.access));
    if (reading.access == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for tokens");
    reading.access->references = 1;
    int code = 0;
    while (text.len > 0 && code == 0) {
        reading.line++;
        code = read_line(&reading, cut(&text, "\n"));
    }
    if (code == 0 && reading.access->count == 0)
        code = err_set(error, STINT_E_SYNTAX,
                       "%s:%u: the file has no token: every request would be rejected", path,
                       reading.line);
    if (code != 0) {
        access_unref(reading.access);
        return code;
    }
    *access = reading.access;
    return 0;
}

/* ---- Wrong secrets, by address --------------------------------------------------------------- */

/*
 * Wrong secrets are counted for each address that sends them: an IPv4 address, the /64 of an IPv6
 * address, or all Unix sockets as one. After too many, the secrets of this address are not checked
 * for a while; other addresses are not affected. The limit and its table of 256 KiB are separate
 * from the users' quotas. Where the table has no slot for an address, its secrets are checked:
 * otherwise an owner of many addresses could lock out all others.
 */
struct guesses {
    struct stint_table *table; /* NULL: wrong secrets are not counted */
    struct stint_quota quota;
    uint64_t calm_at_ns; /* relaxed: when all counted secrets are forgotten */
};

static bool guesses_open(struct guesses *guesses, unsigned per_minute)
{
    const struct stint_table_options options = {.keys = ADDRESSES,
                                                .keys16 = 1,
                                                .tickets = 1,
                                                .blocks = 1,
                                                .quotas = 1,
                                                .pools = 1,
                                                .overrides = 1,
                                                .clock = STINT_CLOCK_VIRTUAL};
    char spec[64];
    assert(per_minute > 0 && guesses->table == NULL);
    snprintf(spec, sizeof(spec), "gcra %u/1m when_full=allow", per_minute);
    return stint_quota_parse(&guesses->quota, spec, NULL) == 0 &&
           stint_table_open(&guesses->table, &options, NULL) == 0;
}

/* The text that the address is counted under: "192.0.2.7", "2001:db8::", "unix"; its length. */
static size_t guesses_address(struct span peer, char text[ADDRESS_SIZE])
{
    int len = stint_address_key(text, ADDRESS_SIZE, (const char *)peer.ptr, peer.len, 32, 64);
    if (len < 0)
        len = snprintf(text, ADDRESS_SIZE, "unix");
    assert(len > 0 && len < ADDRESS_SIZE);
    return (size_t)len;
}

/* Whether a secret from this address is to be checked. Any thread. */
static bool guesses_may(const struct guesses *guesses, struct span peer, uint64_t now_ns)
{
    assert(guesses->table != NULL);
    char text[ADDRESS_SIZE];
    if (__atomic_load_n(&guesses->calm_at_ns, __ATOMIC_RELAXED) <= now_ns)
        return true;
    const struct stint_item item = {
        .quota = &guesses->quota, .key = text, .key_len = guesses_address(peer, text), .cost = 1};
    return stint_peek(guesses->table, &item, 1, now_ns).outcome == STINT_ALLOW;
}

/* Counts a wrong secret. */
static void guesses_count(struct guesses *guesses, struct span peer, uint64_t now_ns)
{
    assert(guesses->table != NULL);
    char text[ADDRESS_SIZE];
    size_t len = guesses_address(peer, text);
    stint_take(guesses->table, &guesses->quota, text, len, 1, now_ns);
    __atomic_store_n(&guesses->calm_at_ns, now_ns + NS_PER_MIN, __ATOMIC_RELAXED);
}

/* ---- The set in force ------------------------------------------------------------------------ */

struct access_now {
    pthread_mutex_t lock; /* of access, while a reference is taken or the set changes */
    struct access *access;
    uint64_t generation;
    unsigned anonymous; /* roles; constant once clients are served */
    struct guesses guesses;
    struct access_guess_options guess_options;
};

struct access_now *access_now_new(struct access *access)
{
    assert(access == NULL || is_valid(access));
    struct access_now *now = calloc(1, sizeof(*now));
    if (now == NULL)
        return NULL;
    pthread_mutex_init(&now->lock, NULL);
    now->access = access;
    now->anonymous = ACCESS_ALL;
    return now;
}

void access_now_set_anonymous(struct access_now *now, unsigned roles)
{
    assert((roles & ~(unsigned)ACCESS_ALL) == 0);
    now->anonymous = roles;
}

unsigned access_now_anonymous(const struct access_now *now)
{
    return now != NULL ? now->anonymous : ACCESS_ALL;
}

void access_now_free(struct access_now *now)
{
    if (now == NULL)
        return;
    access_unref(now->access);
    stint_table_close(now->guesses.table);
    pthread_mutex_destroy(&now->lock);
    free(now);
}

void access_now_set(struct access_now *now, struct access *access)
{
    assert(access == NULL || is_valid(access));
    pthread_mutex_lock(&now->lock);
    struct access *old = now->access;
    now->access = access;
    /* release: a reader that sees the new number gets the new set. */
    __atomic_fetch_add(&now->generation, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&now->lock);
    access_unref(old);
}

bool access_now_renew(struct access_now *now, struct access **access, uint64_t *generation)
{
    if (now == NULL)
        return false;
    /* acquire: pairs with the release of access_now_set(). */
    uint64_t latest = __atomic_load_n(&now->generation, __ATOMIC_ACQUIRE);
    if (latest == *generation)
        return false;
    /* Read before the set: if that changes in between, the next call renews it again. */
    *generation = latest;
    access_unref(*access);
    pthread_mutex_lock(&now->lock);
    *access = access_ref(now->access);
    pthread_mutex_unlock(&now->lock);
    return true;
}

/* ---- Secrets from clients -------------------------------------------------------------------- */

bool access_now_count_guesses(struct access_now *now, const struct access_guess_options *options)
{
    now->guess_options = *options;
    return options->per_minute == 0 || guesses_open(&now->guesses, options->per_minute);
}

static void refuse(struct access_now *now, const struct access_login *login, bool is_slowed)
{
    assert(login->frontend < METRICS_FRONTENDS);
    char address[ADDRESS_SIZE];
    if (login->metrics != NULL)
        metrics_count(login->metrics, (enum metrics_frontend)login->frontend, METRICS_WRONG_SECRETS,
                      1);
    if (now->guesses.table != NULL && !is_slowed)
        guesses_count(&now->guesses, login->peer, login->now_ns);
    guesses_address(login->peer, address);
    if (now->guess_options.refused != NULL)
        now->guess_options.refused(now->guess_options.arg, address,
                                   metrics_frontend_names[login->frontend]);
}

struct span access_bearer_secret(struct span authorization)
{
    static const char scheme[] = "bearer ";
    size_t n = sizeof(scheme) - 1;
    if (authorization.len <= n || strncasecmp((const char *)authorization.ptr, scheme, n) != 0)
        return span_of(NULL, 0);
    while (n < authorization.len && authorization.ptr[n] == ' ')
        n++;
    return span_of(authorization.ptr + n, authorization.len - n);
}

const struct access_token *access_login(struct access_now *now, const struct access *access,
                                        const struct access_login *login, bool *is_slowed)
{
    assert(is_valid(access));
    *is_slowed =
        now->guesses.table != NULL && !guesses_may(&now->guesses, login->peer, login->now_ns);
    const struct access_token *token =
        *is_slowed ? NULL : access_find(access, login->name, login->secret);
    if (token == NULL)
        refuse(now, login, *is_slowed);
    return token;
}
