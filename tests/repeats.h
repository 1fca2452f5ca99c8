/* SPDX-License-Identifier: MIT */
/* How often a test repeats something with other seeds: less where sanitizers make it slow. */
#ifndef STINT_TESTS_REPEATS_H
#define STINT_TESTS_REPEATS_H

#ifdef TEST_SANITIZED
#define REPEATS(natively, sanitized) (sanitized)
#else
#define REPEATS(natively, sanitized) (natively)
#endif

#endif
