/* SPDX-License-Identifier: MIT */
/*
 * The page at /: the server's metrics, drawn in a browser. One file, assembled in the build from
 * dashboard/ and a library of charts; it sends requests only to its own server.
 */
#ifndef STINT_NET_DASHBOARD_DASHBOARD_H
#define STINT_NET_DASHBOARD_DASHBOARD_H

#include <stddef.h>

extern const unsigned char dashboard_html[];
extern const size_t dashboard_html_len;
/* The Content-Security-Policy of the page, terminated: has the hashes of all scripts and styles. */
extern const unsigned char dashboard_policy[];

#endif
