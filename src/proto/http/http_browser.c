/* SPDX-License-Identifier: MIT */
/* Compares Origin and Sec-Fetch-Site with Host, and Host with the known names. */
#include "proto/http/http_browser.h"

#include "proto/http/http_target.h"

#include <arpa/inet.h>

#define HOST_TEXT_MAX 253 /* bytes of a name, as in DNS */

static bool has_end(struct span text, struct span end)
{
    return text.len >= end.len && http_is_same(span_after(text, text.len - end.len), end);
}

/* ---- The origin of a request ----------------------------------------------------------------- */

struct span http_browser_host(const struct http_message *message)
{
    struct span authority = http_target_authority(message->target);
    return authority.ptr != NULL ? authority : http_message_field(message, "Host", 0);
}

/* Whether an origin, "https://host:port", is of this host. Its scheme is for Sec-Fetch-Site. */
static bool is_own_origin(struct span origin, struct span host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t len = strlen(schemes[i]);
        if (origin.len > len && memcmp(origin.ptr, schemes[i], len) == 0)
            return http_is_same(span_after(origin, len), host);
    }
    return false;
}

bool http_browser_is_foreign(const struct http_message *message)
{
    struct span site = http_message_field(message, "Sec-Fetch-Site", 0);
    /* "none": the user has typed the address, or chosen a bookmark. */
    if (site.ptr != NULL && !span_equals(site, "same-origin") && !span_equals(site, "none"))
        return true;
    struct span origin = http_message_field(message, "Origin", 0);
    return origin.ptr != NULL && !is_own_origin(origin, http_browser_host(message));
}

bool http_browser_is_forwarded(const struct http_message *message,
                               const struct http_origin_fields *fields)
{
    const char *const names[] = {
        "X-Forwarded-For",   "Forwarded",         "X-Real-IP",          "X-Original-URI",
        "X-Forwarded-Uri",   "X-Original-Method", "X-Forwarded-Method", "X-Forwarded-Host",
        "X-Forwarded-Proto", fields->address,     fields->uri,          fields->method,
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i] != NULL && http_message_field(message, names[i], 0).ptr != NULL)
            return true;
    return false;
}

/* ---- Host names ------------------------------------------------------------------------------ */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
}

/* A name, or '*' and a suffix: empty, or '.' and a name. */
static bool is_pattern(const char *text)
{
    const char *name = text[0] == '*' ? text + 1 : text;
    if (strlen(name) > HOST_TEXT_MAX || (name == text && (name[0] == '.' || name[0] == '\0')) ||
        (name != text && name[0] != '\0' && (name[0] != '.' || name[1] == '\0')))
        return false;
    while (is_name_byte(*name))
        name++;
    return *name == '\0';
}

int http_hosts_check(const char *const *names, size_t n_names, struct stint_error *error)
{
    if (n_names > HTTP_HOSTS_MAX)
        return err_set(error, STINT_E_RANGE, "%zu host names: at most %d", n_names, HTTP_HOSTS_MAX);
    for (size_t i = 0; i < n_names; i++)
        if (!is_pattern(names[i]))
            return err_set(error, STINT_E_SYNTAX,
                           "host name \"%.100s\": expected a name without scheme and port, such as "
                           "stint.example.com, *.example.com for all names below it, or * for any",
                           names[i]);
    return 0;
}

/* "host:8080" → "host", "[::1]:8080" → "[::1]"; empty where the text after it is no port. */
static struct span without_port(struct span host)
{
    bool is_bracketed = host.len > 0 && host.ptr[0] == '[';
    const uint8_t *end = host.len > 0 ? memchr(host.ptr, is_bracketed ? ']' : ':', host.len) : NULL;
    if (end == NULL)
        return is_bracketed ? span_of(NULL, 0) : host;
    size_t len = (size_t)(end - host.ptr) + is_bracketed;
    struct span port = span_after(host, len);
    for (size_t i = 0; i < port.len; i++)
        if (i == 0 ? port.ptr[i] != ':' : port.ptr[i] < '0' || port.ptr[i] > '9')
            return (struct span){0};
    return span_of(host.ptr, len);
}

/* As browsers write them: four decimal numbers, or IPv6 in brackets. */
static bool is_address(struct span name)
{
    char text[INET6_ADDRSTRLEN];
    uint8_t bytes[16];
    bool is_v6 = name.len >= 2 && name.ptr[0] == '[';
    struct span inner = is_v6 ? span_of(name.ptr + 1, name.len - 2) : name;
    if (inner.len >= sizeof(text))
        return false;
    memcpy(text, inner.ptr, inner.len);
    text[inner.len] = '\0';
    return inet_pton(is_v6 ? AF_INET6 : AF_INET, text, bytes) == 1;
}

static bool fits(struct span name, struct span pattern)
{
    bool is_open = pattern.ptr[0] == '*';
    struct span end = span_after(pattern, is_open ? 1 : 0);
    return is_open ? name.len > end.len && has_end(name, end) : http_is_same(name, end);
}

bool http_hosts_have(const char *const *names, size_t n_names, struct span host)
{
    struct span name = without_port(host);
    if (name.len == 0)
        return false;
    if (is_address(name))
        return true;
    if (name.ptr[name.len - 1] == '.') /* of a fully qualified name in DNS notation */
        name.len--;
    if (fits(name, span_of_text("localhost")) || fits(name, span_of_text("*.localhost")))
        return true;
    for (size_t i = 0; i < n_names; i++)
        if (fits(name, span_of_text(names[i])))
            return true;
    return false;
}
