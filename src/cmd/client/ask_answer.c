/* SPDX-License-Identifier: MIT */
/* Reads a server's answer: a decision, or a problem with the server's message. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/client/ask.h"

#include <string.h>

/* The server's message, for people; NULL without one. */
static const char *message_of(const json_t *object)
{
    const char *detail = json_string_value(json_object_get(object, "detail"));
    return detail != NULL ? detail : json_string_value(json_object_get(object, "title"));
}

static int refused(const struct client_answer *from, const json_t *object,
                   struct stint_error *error)
{
    const char *message = message_of(object);
    if (message != NULL)
        return err_set(error, STINT_E_SYSTEM, "the server answers %d: %s", from->status, message);
    return err_set(error, STINT_E_SYSTEM, "the server answers %d, without a reason", from->status);
}

static int no_decision(const struct client_answer *from, struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX,
                   "expected a decision, found %zu bytes of '%s' with status %d; is it a stint "
                   "server?",
                   from->body.len, from->type, from->status);
}

static bool read_outcome(const json_t *object, uint8_t *outcome)
{
    static const char *const names[] = {
        [STINT_ALLOW] = "allow", [STINT_DENY] = "deny", [STINT_NEVER] = "never"};
    const char *name = json_string_value(json_object_get(object, "outcome"));
    for (uint8_t i = 0; name != NULL && i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0) {
            *outcome = i;
            return true;
        }
    return false;
}

/* A wait is given only if the request is denied for now. */
static bool read_wait(struct ask_answer *answer)
{
    const json_t *wait = json_object_get(answer->object, "retry_after_ms");
    answer->retry_after_ns = answer->outcome == STINT_NEVER ? STINT_NEVER_NS : 0;
    if (answer->outcome != STINT_DENY)
        return true;
    if (!json_is_integer(wait) || json_integer_value(wait) < 0 ||
        (uint64_t)json_integer_value(wait) > STINT_NOW_MAX / NS_PER_MS)
        return false;
    answer->retry_after_ns = (uint64_t)json_integer_value(wait) * NS_PER_MS;
    return true;
}

int ask_answer_read(struct ask_answer *answer, enum request_verb verb,
                    const struct client_answer *from, struct stint_error *error)
{
    *answer = (struct ask_answer){.outcome = STINT_ALLOW};
    bool good = from->status >= 200 && from->status < 300;
    if (from->body.len > 0)
        answer->object =
            json_loadb((const char *)from->body.ptr, from->body.len, JSON_ALLOW_NUL, NULL);
    if (verb == REQUEST_RESET && good && (json_is_object(answer->object) || from->body.len == 0))
        return 0;
    if (!good && from->status != 429)
        return refused(from, answer->object, error);
    /* A 429 without a decision comes from a proxy, or from the server's connection limits. */
    if (!read_outcome(answer->object, &answer->outcome))
        return good ? no_decision(from, error) : refused(from, answer->object, error);
    return read_wait(answer) ? 0 : no_decision(from, error);
}
