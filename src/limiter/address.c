/* SPDX-License-Identifier: MIT */
/* Keys from IP addresses: one host is one key, however its address is written. */
#include "base/err.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ADDRESS_MAX 128 /* a full IPv6 address, a zone, brackets and a port */

static bool is_port(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 5 && text[digits] == '\0' &&
           strtol(text, NULL, 10) <= UINT16_MAX;
}

/* Removes brackets, a port and a zone; false for what cannot be an address. */
static bool bare_address(char *text, const char *address, size_t len)
{
    assert(text != NULL);
    if (len == 0 || len >= ADDRESS_MAX || memchr(address, '\0', len) != NULL)
        return false;
    memcpy(text, address, len);
    text[len] = '\0';
    if (text[0] == '[') {
        char *end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && (end[1] != ':' || !is_port(end + 2))))
            return false;
        *end = '\0';
        memmove(text, text + 1, strlen(text + 1) + 1);
    } else {
        char *colon = strchr(text, ':');
        if (colon != NULL && strchr(colon + 1, ':') == NULL) {
            if (!is_port(colon + 1))
                return false;
            *colon = '\0'; /* one colon is a port; IPv6 has at least two */
        }
    }
    char *zone = strchr(text, '%');
    if (zone == NULL)
        return true;
    *zone = '\0';
    return zone[1] != '\0' && strchr(text, ':') != NULL; /* IPv4 has no zones */
}

static void keep_bits(unsigned char *bytes, size_t n_bytes, unsigned bits)
{
    assert(bits <= 8 * n_bytes);
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned kept = bits > 8 * i ? bits - 8 * (unsigned)i : 0;
        if (kept < 8)
            bytes[i] &= (unsigned char)(0xff00u >> kept);
    }
}

int stint_address_key(char *text, size_t text_size, const char *address, size_t address_len,
                      unsigned v4_bits, unsigned v6_bits)
{
    assert(text != NULL);
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    char bare[ADDRESS_MAX];
    unsigned char bytes[16];
    int family = AF_INET6;
    if (v4_bits > 32 || v6_bits > 128)
        return STINT_E_RANGE;
    if (!bare_address(bare, address, address_len))
        return STINT_E_SYNTAX;
    if (inet_pton(AF_INET, bare, bytes) == 1)
        family = AF_INET;
    else if (inet_pton(AF_INET6, bare, bytes) != 1)
        return STINT_E_SYNTAX;
    if (family == AF_INET6 && memcmp(bytes, mapped, sizeof(mapped)) == 0) {
        memmove(bytes, bytes + sizeof(mapped), 4);
        family = AF_INET;
    }
    if (family == AF_INET)
        keep_bits(bytes, 4, v4_bits);
    else
        keep_bits(bytes, 16, v6_bits);
    if (inet_ntop(family, bytes, text, (socklen_t)text_size) == NULL)
        return STINT_E_RANGE;
    return (int)strlen(text);
}
