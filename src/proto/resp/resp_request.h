/* SPDX-License-Identifier: MIT */
/* The arguments of a command as a request: CL.THROTTLE, the keys beside it, and every STINT verb.
 */
#ifndef STINT_PROTO_RESP_RESP_REQUEST_H
#define STINT_PROTO_RESP_RESP_REQUEST_H

#include "decide/request.h"
#include "proto/resp/resp_command.h"

/* The prefix of CL.THROTTLE's errors that redis-cell has, too, after the word "Cell". */
#define RESP_CELL_ERROR "error: Store error: "
#define RESP_CELL_USAGE                                                                            \
    RESP_CELL_ERROR                                                                                \
    "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"

#define RESP_WAIT_MAX_MS UINT64_C(86400000)     /* WAIT */
#define RESP_TIME_MAX_MS UINT64_C(315360000000) /* LIFETIME, MAXWAIT, FOR: ten years */
#define RESP_ID_MAX 128

/* Memory for the lists of a request; one is enough for any number of connections. */
struct resp_lists {
    struct request_item items[STINT_ITEMS_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    struct descriptor_entry entries[DESCRIPTORS_MAX * ENTRIES_MAX];
};

/*
 * Parses a command that is a request: not one of the connection, of pools or metrics. DEL, UNLINK,
 * EXISTS, TTL and PTTL are requests for one key each: see resp_request_key(). args[0] is the
 * command's name, and the number of args is valid for it. All pointers of *request are into args or
 * lists. STINT_E_SYNTAX or STINT_E_RANGE with a message that names the command and what was
 * expected.
 */
int resp_request_read(const struct resp_command *command, const struct span *args, size_t n_args,
                      struct resp_lists *lists, struct request *request, struct stint_error *error);

/*
 * Only CL.THROTTLE, for speed: sets key, cost and throttle of a request that was initialised once.
 */
int resp_request_throttle(const struct span *args, size_t n_args, struct request *request,
                          struct stint_error *error);

/* FORGET or FIND for a key of CL.THROTTLE. */
void resp_request_key(struct request *request, enum request_verb verb, struct span key);

/* STINT_E_RANGE and STINT_E_SYNTAX, with the expected and the actual argument. */
int resp_refuse_number(const char *what, struct span text, uint64_t min, uint64_t max,
                       struct stint_error *error);
int resp_refuse_word(const char *expected, struct span text, struct stint_error *error);
/* The argument of ID: 0, or STINT_E_RANGE. */
int resp_check_id(struct span id, struct stint_error *error);

#endif
