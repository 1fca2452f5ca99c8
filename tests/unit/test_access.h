/* SPDX-License-Identifier: MIT */
/* Tokens from text: lines of "NAME ROLES SECRET". */
#ifndef STINT_TESTS_TEST_ACCESS_H
#define STINT_TESTS_TEST_ACCESS_H

#include "unit/test.h"

#include "service/access/access.h"

static inline struct access *access_of(const char *lines)
{
    char text[1024] = "", name[64], roles[64], secret[128], hash[ACCESS_HASH_TEXT_SIZE];
    struct access *access;
    struct stint_error error;
    int used = 0;
    for (; sscanf(lines, "%63s %63s %127s%n", name, roles, secret, &used) == 3; lines += used) {
        size_t len = strlen(text);
        access_hash_text(span_of_text(secret), hash);
        snprintf(text + len, sizeof(text) - len, "%s %s %s\n", name, roles, hash);
    }
    if (access_load(&access, "tokens", span_of_text(text), &error) != 0)
        fail_msg("%s", error.message);
    return access;
}

#endif
