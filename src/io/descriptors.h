/* SPDX-License-Identifier: MIT */
/* How many descriptors the process may have open. */
#ifndef STINT_IO_DESCRIPTORS_H
#define STINT_IO_DESCRIPTORS_H

#include <stdint.h>

/*
 * As many as the system allows from now on. The connections that are possible then, beside what so
 * many workers need; UINT64_MAX: any number.
 */
uint64_t descriptors_raise(unsigned workers);

#endif
