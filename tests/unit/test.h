/* SPDX-License-Identifier: MIT */
/*
 * What every unit test includes: cmocka with what it needs before it, and tests that register
 * themselves. A file is its tests, in the order in which they run; unit/test.c has main().
 *
 *     SETUP { … }        before each test of the program
 *     TEARDOWN { … }     after each of them, whether it passed or failed
 *     TEST(a_name) { … }
 */
#ifndef STINT_TESTS_TEST_H
#define STINT_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "repeats.h"

/* How many elements an array has. */
#define N(array) (sizeof(array) / sizeof((array)[0]))

/* Whether a text has this line. */
static inline void assert_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    if (at == NULL || (at > text && at[-1] != '\n') || at[strlen(line)] != '\n')
        fail_msg("no line `%s` in\n%s", line, text);
}

struct test_case {
    const char *name;
    void (*run)(void);
    int line;
    struct test_case *next;
};

void test_add(struct test_case *test);

/* NULL leaves what was set. */
void test_surround(void (*before)(void), void (*after)(void));

#define TEST(test)                                                                                 \
    static void test(void);                                                                        \
    __attribute__((constructor)) static void add_##test(void)                                      \
    {                                                                                              \
        static struct test_case added = {.name = #test, .run = test, .line = __LINE__};            \
        test_add(&added);                                                                          \
    }                                                                                              \
    static void test(void)

#define SETUP TEST_SURROUND(set_up, set_up, NULL)
#define TEARDOWN TEST_SURROUND(tear_down, NULL, tear_down)
#define TEST_SURROUND(function, before, after)                                                     \
    static void function(void);                                                                    \
    __attribute__((constructor)) static void add_##function(void)                                  \
    {                                                                                              \
        test_surround(before, after);                                                              \
    }                                                                                              \
    static void function(void)

#endif
