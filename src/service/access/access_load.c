/* SPDX-License-Identifier: MIT */
/* Reads a file of tokens, line by line. */
#include "base/err.h"
#include "service/access/access_set.h"

#include <stdio.h>
#include <stdlib.h>

#define HASH_PREFIX "sha256:"

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

static int hex_value(uint8_t c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static bool parse_hash(struct span text, uint8_t digest[ACCESS_DIGEST_SIZE])
{
    size_t prefix = strlen(HASH_PREFIX);
    if (text.len != prefix + (size_t)2 * ACCESS_DIGEST_SIZE ||
        memcmp(text.ptr, HASH_PREFIX, prefix) != 0)
        return false;
    for (size_t i = 0; i < ACCESS_DIGEST_SIZE; i++) {
        int high = hex_value(text.ptr[prefix + 2 * i]);
        int low = hex_value(text.ptr[prefix + 2 * i + 1]);
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
                     const uint8_t digest[ACCESS_DIGEST_SIZE])
{
    const struct access *access = reading->access;
    for (size_t i = 0; i < access->count; i++) {
        const struct access_entry *entry = &access->entries[i];
        if (span_equals(name, entry->name))
            return err_set(reading->error, STINT_E_SYNTAX, "%s:%u: the name %s is also on line %u",
                           reading->path, reading->line, entry->name, entry->line);
        if (memcmp(entry->digest, digest, ACCESS_DIGEST_SIZE) == 0)
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
                const uint8_t digest[ACCESS_DIGEST_SIZE])
{
    struct access *access = reading->access;
    /* Allocates all at once with the first token: tokens are pointed to, and never move. */
    if (access->entries == NULL)
        access->entries = calloc(ACCESS_TOKENS_MAX, sizeof(*access->entries));
    char *copy = malloc(name.len + 1);
    if (access->entries == NULL || copy == NULL) {
        free(copy);
        return err_set(reading->error, STINT_E_SYSTEM, "no memory for tokens");
    }
    memcpy(copy, name.ptr, name.len);
    copy[name.len] = '\0';
    struct access_entry *entry = &access->entries[access->count++];
    entry->token = (struct access_token){copy, roles};
    entry->name = copy;
    entry->line = reading->line;
    memcpy(entry->digest, digest, ACCESS_DIGEST_SIZE);
    return 0;
}

static int read_line(const struct reading *reading, struct span line)
{
    uint8_t digest[ACCESS_DIGEST_SIZE];
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
