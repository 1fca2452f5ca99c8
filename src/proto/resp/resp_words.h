/* SPDX-License-Identifier: MIT */
/* Targets and options: the part of a command that consists of words with arguments. */
#ifndef STINT_PROTO_RESP_RESP_WORDS_H
#define STINT_PROTO_RESP_RESP_WORDS_H

#include "proto/resp/resp_request.h"

/* STINT_E_RANGE and STINT_E_SYNTAX, with the expected and the actual argument. */
int resp_refuse_number(const char *what, struct span text, uint64_t min, uint64_t max,
                       struct stint_error *error);
int resp_refuse_word(const char *expected, struct span text, struct stint_error *error);

#endif
