/* SPDX-License-Identifier: MIT */
/*
 * Where the states of a case are: in the table of its server, or in a real Redis or memcached of
 * this process's own, which is asked in the virtual time of the case.
 */
#ifndef STINT_TESTS_BEHAVIOUR_STORE_H
#define STINT_TESTS_BEHAVIOUR_STORE_H

#include "service/service.h"

/* table, redis or memcached. Starts the server, and returns once it answers. False: another name.
 */
bool store_begin(const char *name, uint64_t epoch_ns);
/* Stops it by its pid, and removes its folder. */
void store_end(void);

/* What a limit says to have its states there: ", store: red", or nothing for the table. */
const char *store_keys(void);
/* Gives a service the store, under keys that no other has; before its first request. */
void store_give(struct service *service);
/* What services that are opened from now on do with Envoy's hits. */
void store_set_hits(bool charges, bool checks_debt);
/* Closes what was given, once the services are no more. */
void store_take_back(void);

#endif
