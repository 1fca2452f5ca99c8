/* SPDX-License-Identifier: MIT */
/* Inline commands: words separated by spaces, quoted where they contain spaces. */
#ifndef STINT_PROTO_RESP_RESP_LINE_H
#define STINT_PROTO_RESP_RESP_LINE_H

#include "proto/resp/resp_reader.h"

/*
 * Splits a line without its LF, as Redis does: "…" with \n \r \t \b \a \\ \" \xHH, '…' with \'. The
 * bytes of the arguments are in argv->space. 0, or a negative enum resp_error.
 */
long resp_line_split(struct span line, size_t arguments_max, struct resp_argv *argv);

#endif
