/* SPDX-License-Identifier: MIT */
/* Trusted networks, and the trusted parts of X-Forwarded-For, Forwarded and similar fields. */
#include "proto/http/http_origin.h"

#include "base/number.h"

#include <arpa/inet.h>
#include <stdlib.h>

struct network {
    uint8_t bytes[16]; /* IPv4 as it is mapped into IPv6 */
    unsigned bits;
};

struct http_proxies {
    bool trusts_unix;
    size_t n_networks;
    struct network networks[];
};

#define ADDRESS_TEXT_MAX 64
static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

/* The address in 16 bytes, for any notation. False if it is invalid. */
static bool address_bytes(uint8_t bytes[16], struct span text)
{
    char plain[ADDRESS_TEXT_MAX];
    memcpy(bytes, v4_mapped, sizeof(v4_mapped));
    if (text.len < sizeof(plain)) {
        /* Most addresses are four numbers and nothing else. */
        memcpy(plain, text.ptr, text.len);
        plain[text.len] = '\0';
        if (inet_pton(AF_INET, plain, bytes + 12) == 1)
            return true;
    }
    int len = stint_address_key(plain, sizeof(plain), (const char *)text.ptr, text.len, 32, 128);
    if (len < 0)
        return false;
    return inet_pton(AF_INET, plain, bytes + 12) == 1 || inet_pton(AF_INET6, plain, bytes) == 1;
}

static bool network_holds(const struct network *network, const uint8_t address[16])
{
    unsigned whole = network->bits / 8, rest = network->bits % 8;
    if (memcmp(network->bytes, address, whole) != 0)
        return false;
    return rest == 0 || ((network->bytes[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

static int parse_network(struct network *network, const char *text, struct stint_error *error)
{
    const char *slash = strchr(text, '/');
    struct span address = span_of(text, slash != NULL ? (size_t)(slash - text) : strlen(text));
    if (!address_bytes(network->bytes, address))
        return err_set(error, STINT_E_SYNTAX,
                       "trusted proxy \"%.100s\": expected an address, a network like 10.0.0.0/8, "
                       "or unix",
                       text);
    bool is_v4 = memcmp(network->bytes, v4_mapped, sizeof(v4_mapped)) == 0;
    unsigned most = is_v4 ? 32 : 128;
    uint64_t bits = most;
    if (slash != NULL && !resp_number_read(span_of_text(slash + 1), most, &bits))
        return err_set(error, STINT_E_RANGE,
                       "trusted proxy \"%.100s\": expected a length of 0 to %u after the '/'", text,
                       most);
    network->bits = (unsigned)bits + (is_v4 ? 96 : 0);
    return 0;
}

int http_proxies_new(struct http_proxies **proxies, const char *const *texts, size_t n_texts,
                     struct stint_error *error)
{
    if (n_texts > HTTP_PROXIES_MAX)
        return err_set(error, STINT_E_RANGE, "%zu trusted proxies: at most %d networks", n_texts,
                       HTTP_PROXIES_MAX);
    struct http_proxies *made = calloc(1, sizeof(*made) + n_texts * sizeof(made->networks[0]));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for trusted proxies");
    for (size_t i = 0; i < n_texts; i++) {
        if (strcmp(texts[i], "unix") == 0) {
            made->trusts_unix = true;
            continue;
        }
        int code = parse_network(&made->networks[made->n_networks], texts[i], error);
        if (code < 0) {
            free(made);
            return code;
        }
        made->n_networks++;
    }
    *proxies = made;
    return 0;
}

void http_proxies_free(struct http_proxies *proxies)
{
    free(proxies);
}

bool http_proxies_trust(const struct http_proxies *proxies, struct span address)
{
    uint8_t bytes[16];
    if (address.len == 0)
        return proxies->trusts_unix;
    if (proxies->n_networks == 0 || !address_bytes(bytes, address))
        return false;
    for (size_t i = 0; i < proxies->n_networks; i++)
        if (network_holds(&proxies->networks[i], bytes))
            return true;
    return false;
}

/* Whether an odd number of backslashes is before it. */
static bool is_escaped(struct span text, size_t at)
{
    size_t start = at;
    while (start > 0 && text.ptr[start - 1] == '\\')
        start--;
    return (at - start) % 2 == 1;
}

/*
 * Cuts off the text after the last `separator` outside quotes, and keeps the text before it. All of
 * the text where a quote has no pair. Pairs are found from the right, as a client's own text may be
 * on the left of what its proxy has added.
 */
static struct span take_last(struct span *list, char separator)
{
    bool is_quoted = false;
    size_t at = list->len;
    for (; at > 0; at--) {
        uint8_t c = list->ptr[at - 1];
        if (c == (uint8_t)separator && !is_quoted)
            break;
        if (c == '"' && !(is_quoted && is_escaped(*list, at - 1)))
            is_quoted = !is_quoted;
    }
    struct span last = span_after(*list, at);
    list->len = at > 0 ? at - 1 : 0;
    return span_trim(last);
}

/* "for" of an element of Forwarded (RFC 7239); the element itself for other fields. */
static struct span forwarded_for(struct span element)
{
    while (element.len > 0) {
        struct span pair = take_last(&element, ';');
        if (pair.len < 4 || (pair.ptr[0] | 0x20) != 'f' || (pair.ptr[1] | 0x20) != 'o' ||
            (pair.ptr[2] | 0x20) != 'r' || pair.ptr[3] != '=')
            continue;
        struct span value = span_of(pair.ptr + 4, pair.len - 4);
        if (value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"')
            value = span_of(value.ptr + 1, value.len - 2);
        return value;
    }
    return element;
}

static bool is_address(struct span text)
{
    uint8_t bytes[16];
    return address_bytes(bytes, text);
}

/*
 * From the socket towards the client: each address was added by the host before it. The first one
 * that is not trusted is the client, and the addresses that it sent are ignored. If a trusted proxy
 * gives no valid address, the result is the address of that proxy.
 */
static struct span walk_addresses(const struct http_proxies *proxies,
                                  const struct http_message *message, const char *name,
                                  bool is_rfc7239)
{
    struct span found = message->peer;
    size_t n_lines = 0;
    while (http_message_field(message, name, n_lines).ptr != NULL)
        n_lines++;
    while (n_lines-- > 0) {
        struct span line = http_message_field(message, name, n_lines);
        while (line.len > 0) {
            struct span element = take_last(&line, ',');
            if (element.len == 0)
                continue;
            struct span address = is_rfc7239 ? forwarded_for(element) : element;
            if (!is_address(address))
                return found;
            found = address;
            if (!http_proxies_trust(proxies, address))
                return found;
        }
    }
    return found;
}

/* The one of two fields that is present; *name is its name. */
static int choose_field(const char **name, const char *first, const char *second, const char *what,
                        const struct http_message *message, struct stint_error *error)
{
    bool has_first = http_message_field(message, first, 0).ptr != NULL;
    bool has_second = http_message_field(message, second, 0).ptr != NULL;
    if (has_first && has_second)
        return err_set(error, STINT_E_MISMATCH,
                       "both %s and %s came: the proxy must send only one of them; otherwise set "
                       "http.%s",
                       first, second, what);
    *name = has_first ? first : has_second ? second : NULL;
    return 0;
}

static int find_address(struct http_origin *origin, const struct http_proxies *proxies,
                        const char *name, const struct http_message *message,
                        struct stint_error *error)
{
    if (name == NULL) {
        int code =
            choose_field(&name, "X-Forwarded-For", "Forwarded", "address_field", message, error);
        if (code < 0 || name == NULL)
            return code;
    }
    bool is_rfc7239 = http_is_same(span_of_text(name), span_of_text("Forwarded"));
    origin->address = walk_addresses(proxies, message, name, is_rfc7239);
    return 0;
}

/* Two lines of a field with a single value: one of them is the client's own. */
static int find_one(struct span *value, const char *name, const char *first, const char *second,
                    const char *what, const struct http_message *message, struct stint_error *error)
{
    if (name == NULL) {
        int code = choose_field(&name, first, second, what, message, error);
        if (code < 0 || name == NULL)
            return code;
    }
    struct span found = http_message_field(message, name, 0);
    if (found.ptr == NULL)
        return 0;
    if (http_message_field(message, name, 1).ptr != NULL)
        return err_set(error, STINT_E_MISMATCH,
                       "%s came twice: the proxy must replace the client's field", name);
    *value = found;
    return 0;
}

int http_origin_find(struct http_origin *origin, const struct http_proxies *proxies,
                     const struct http_origin_fields *fields, const struct http_message *message,
                     struct stint_error *error)
{
    *origin = (struct http_origin){
        .is_forwarded = http_proxies_trust(proxies, message->peer),
        .address = message->peer,
        .method = message->method,
        .target = message->target,
    };
    if (!origin->is_forwarded)
        return 0;
    int code = find_address(origin, proxies, fields->address, message, error);
    if (code == 0)
        code = find_one(&origin->target, fields->uri, "X-Original-URI", "X-Forwarded-Uri",
                        "uri_field", message, error);
    if (code == 0)
        code = find_one(&origin->method, fields->method, "X-Original-Method", "X-Forwarded-Method",
                        "method_field", message, error);
    return code;
}
