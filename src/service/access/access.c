/* SPDX-License-Identifier: MIT */
/* Tokens in force: the search for a secret, and the exchange of one set for another. */
#include "service/access/access.h"

#include "service/access/access_set.h"
#include "service/access/guesses.h"
#include "service/metrics/metrics.h"

#include <gnutls/crypto.h>
#include <pthread.h>
#include <stdlib.h>

#define HASH_PREFIX "sha256:"

struct access *access_ref(struct access *access)
{
    if (access != NULL)
        /* relaxed: the caller already holds a reference, or the lock of access_now. */
        __atomic_fetch_add(&access->references, 1, __ATOMIC_RELAXED);
    return access;
}

void access_unref(struct access *access)
{
    /* acq_rel: what others did with the set comes before it is freed. */
    if (access == NULL || __atomic_sub_fetch(&access->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    for (size_t i = 0; i < access->count; i++)
        free(access->entries[i].name);
    free(access->entries);
    free(access);
}

static bool digest_of(struct span secret, uint8_t digest[ACCESS_DIGEST_SIZE])
{
    return gnutls_hash_fast(GNUTLS_DIG_SHA256, secret.ptr, secret.len, digest) == 0;
}

const struct access_token *access_find(const struct access *access, struct span name,
                                       struct span secret)
{
    uint8_t digest[ACCESS_DIGEST_SIZE];
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
    text[len] = '\0';
    gnutls_memset(chance, 0, sizeof(chance));
    return true;
}

void access_hash_text(struct span secret, char text[ACCESS_HASH_TEXT_SIZE])
{
    uint8_t digest[ACCESS_DIGEST_SIZE] = {0};
    digest_of(secret, digest);
    size_t len = strlen(HASH_PREFIX);
    memcpy(text, HASH_PREFIX, len);
    for (size_t i = 0; i < sizeof(digest); i++) {
        text[len++] = "0123456789abcdef"[digest[i] >> 4];
        text[len++] = "0123456789abcdef"[digest[i] & 15];
    }
    text[len] = '\0';
}

/* ---- The set in force ------------------------------------------------------------------------ */

struct access_now {
    pthread_mutex_t lock; /* of access, while a reference is taken or the set changes */
    struct access *access;
    uint64_t generation;
    struct guesses *guesses; /* NULL: wrong secrets are not counted */
    struct access_guess_options guess_options;
};

struct access_now *access_now_new(struct access *access)
{
    struct access_now *now = calloc(1, sizeof(*now));
    if (now == NULL)
        return NULL;
    pthread_mutex_init(&now->lock, NULL);
    now->access = access;
    return now;
}

void access_now_free(struct access_now *now)
{
    if (now == NULL)
        return;
    access_unref(now->access);
    guesses_free(now->guesses);
    pthread_mutex_destroy(&now->lock);
    free(now);
}

void access_now_set(struct access_now *now, struct access *access)
{
    pthread_mutex_lock(&now->lock);
    struct access *old = now->access;
    now->access = access;
    /* release: a reader that sees the new number gets the new set. */
    __atomic_fetch_add(&now->generation, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&now->lock);
    access_unref(old);
}

struct access *access_now_get(struct access_now *now)
{
    pthread_mutex_lock(&now->lock);
    struct access *access = access_ref(now->access);
    pthread_mutex_unlock(&now->lock);
    return access;
}

uint64_t access_now_generation(const struct access_now *now)
{
    /* acquire: pairs with the release of access_now_set(). */
    return __atomic_load_n(&now->generation, __ATOMIC_ACQUIRE);
}

/* ---- Secrets from clients -------------------------------------------------------------------- */

bool access_now_count_guesses(struct access_now *now, const struct access_guess_options *options)
{
    now->guess_options = *options;
    if (options->per_minute > 0)
        now->guesses = guesses_new(options->per_minute);
    return now->guesses != NULL || options->per_minute == 0;
}

static void refuse(struct access_now *now, const struct access_login *login, bool is_slowed)
{
    char address[GUESSES_ADDRESS_SIZE];
    if (login->metrics != NULL)
        metrics_wrong_secret(login->metrics, (enum metrics_frontend)login->frontend);
    if (now->guesses != NULL && !is_slowed)
        guesses_count(now->guesses, login->peer, login->now_ns);
    guesses_address(login->peer, address);
    if (now->guess_options.refused != NULL)
        now->guess_options.refused(now->guess_options.arg, address,
                                   metrics_frontend_name((enum metrics_frontend)login->frontend));
}

const struct access_token *access_login(struct access_now *now, const struct access *access,
                                        const struct access_login *login, bool *is_slowed)
{
    *is_slowed = now->guesses != NULL && !guesses_may(now->guesses, login->peer, login->now_ns);
    const struct access_token *token =
        *is_slowed ? NULL : access_find(access, login->name, login->secret);
    if (token == NULL)
        refuse(now, login, *is_slowed);
    return token;
}
