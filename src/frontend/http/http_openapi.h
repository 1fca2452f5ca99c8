/* SPDX-License-Identifier: MIT */
/* docs/openapi.json, built into the program. */
#ifndef STINT_FRONTEND_HTTP_HTTP_OPENAPI_H
#define STINT_FRONTEND_HTTP_HTTP_OPENAPI_H

#include <stddef.h>

extern const unsigned char http_openapi[];
extern const size_t http_openapi_len;

#endif
