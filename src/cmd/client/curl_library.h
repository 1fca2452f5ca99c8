/* SPDX-License-Identifier: MIT */
/*
 * libcurl, loaded at the first request: a server, and commands that make none, then start
 * without the dozen libraries that it brings along (docs/decisions/0024).
 */
#ifndef STINT_CMD_CLIENT_CURL_LIBRARY_H
#define STINT_CMD_CLIENT_CURL_LIBRARY_H

#include "base/err.h"

#include <curl/curl.h>

/* The functions that are used. Names in parentheses are not the macros of the same name. */
#define CURL_LIBRARY_FUNCTIONS(X)                                                                  \
    X(global_init)                                                                                 \
    X(version_info)                                                                                \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_perform)                                                                                \
    X(easy_strerror)                                                                               \
    X(easy_cleanup)                                                                                \
    X(slist_append)                                                                                \
    X(slist_free_all)

#define CURL_LIBRARY_MEMBER(name) __typeof__(curl_##name) *name;

struct curl_library {
    CURL_LIBRARY_FUNCTIONS(CURL_LIBRARY_MEMBER)
};

/* 0, or STINT_E_SYSTEM where there is no libcurl. The library stays loaded. One thread. */
int curl_library_load(const struct curl_library **library, struct stint_error *error);
/* 0, or STINT_E_SYSTEM where it was built without HTTP/2. */
int curl_library_check_http2(const struct curl_library *library, struct stint_error *error);

#endif
