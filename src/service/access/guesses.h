/* SPDX-License-Identifier: MIT */
/*
 * Wrong secrets, counted for each address that sends them: an IPv4 address, the /64 of an IPv6
 * address, or all Unix sockets as one. An address that has sent too many is not listened to for a
 * while, and others are not affected. The counts are a limit of our own, in a table of its own.
 */
#ifndef STINT_SERVICE_ACCESS_GUESSES_H
#define STINT_SERVICE_ACCESS_GUESSES_H

#include "base/span.h"
#include "stint.h"

#define GUESSES_ADDRESS_SIZE 64

struct guesses;

struct guesses *guesses_new(unsigned per_minute); /* NULL: no memory */
void guesses_free(struct guesses *guesses);       /* NULL is fine */

/* Whether a secret from this address is to be looked at. Any thread. */
bool guesses_may(const struct guesses *guesses, struct span peer, uint64_t now_ns);
/* It was wrong. */
void guesses_count(struct guesses *guesses, struct span peer, uint64_t now_ns);

/* What the address is counted under: "192.0.2.7", "2001:db8::", "unix". Returns its length. */
size_t guesses_address(struct span peer, char text[GUESSES_ADDRESS_SIZE]);

#endif
