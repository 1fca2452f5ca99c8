/* SPDX-License-Identifier: MIT */
/*
 * Wrong secrets, counted for each address that sends them: an IPv4 address, the /64 of an IPv6
 * address, or all Unix sockets as one. After too many, the secrets of this address are not checked
 * for a while; other addresses are not affected. The limit and its table are separate from the
 * users' quotas.
 */
#ifndef STINT_SERVICE_ACCESS_GUESSES_H
#define STINT_SERVICE_ACCESS_GUESSES_H

#include "base/span.h"
#include "stint.h"

#define GUESSES_ADDRESS_SIZE 64

struct guesses;

struct guesses *guesses_new(unsigned per_minute); /* NULL: no memory */
void guesses_free(struct guesses *guesses);       /* NULL is allowed */

/* Whether a secret from this address is to be checked. Any thread. */
bool guesses_may(const struct guesses *guesses, struct span peer, uint64_t now_ns);
/* Counts a wrong secret. */
void guesses_count(struct guesses *guesses, struct span peer, uint64_t now_ns);

/* The text that the address is counted under: "192.0.2.7", "2001:db8::", "unix"; its length. */
size_t guesses_address(struct span peer, char text[GUESSES_ADDRESS_SIZE]);

#endif
