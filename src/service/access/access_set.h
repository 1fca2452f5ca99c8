/* SPDX-License-Identifier: MIT */
/* The layout of a set of tokens, for the reader of the file and the search only. */
#ifndef STINT_SERVICE_ACCESS_ACCESS_SET_H
#define STINT_SERVICE_ACCESS_ACCESS_SET_H

#include "service/access/access.h"

#define ACCESS_DIGEST_SIZE 32

struct access_entry {
    struct access_token token; /* first: callers hold a pointer to it */
    char *name;
    uint32_t line;
    uint8_t digest[ACCESS_DIGEST_SIZE];
};

struct access {
    uint64_t references;
    struct access_entry *entries;
    size_t count;
};

#endif
