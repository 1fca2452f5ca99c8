/* SPDX-License-Identifier: MIT */
/*
 * The page at /: figures of the server, drawn in a browser. One file, put together when the program
 * is built from dashboard/ and a library of charts; it asks nobody but the server it came from.
 */
#ifndef STINT_NET_DASHBOARD_DASHBOARD_H
#define STINT_NET_DASHBOARD_DASHBOARD_H

#include <stddef.h>

extern const unsigned char dashboard_html[];
extern const size_t dashboard_html_len;
/* The Content-Security-Policy of the page, terminated: it names all that runs in it by hashes. */
extern const unsigned char dashboard_policy[];

#endif
