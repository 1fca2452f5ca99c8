/* SPDX-License-Identifier: MIT */
/* Words separated by blanks; a percent sign may follow its number directly. */
#include "sim/plan/plan_target.h"

#include "base/wide_int.h"
#include "sim/input/timestamp.h"

#define BILLION UINT64_C(1000000000)

static int not_a_target(const char *text, struct stint_error *error)
{
    return err_set(error, STINT_E_SYNTAX,
                   "expected a target such as '%s', 'deny at most 5 keys' or 'deny at most 1 %% of "
                   "requests', found '%s'",
                   PLAN_TARGET_DEFAULT, text);
}

/* Takes the next word off the text: it ends at a blank, or before or after a %. */
static struct span next_word(const char **text)
{
    const char *begin = *text + strspn(*text, " \t");
    size_t len = begin[0] == '%' ? 1 : strcspn(begin, " \t%");
    *text = begin + len;
    return span_of(begin, len);
}

/* Takes a word off the text if it is the next one. */
static bool skip(const char **text, const char *word)
{
    const char *rest = *text;
    if (!span_equals(next_word(&rest), word))
        return false;
    *text = rest;
    return true;
}

static bool read_of(struct plan_target *target, struct span word)
{
    target->of_keys = span_equals(word, "keys") || span_equals(word, "key");
    return target->of_keys || span_equals(word, "requests") || span_equals(word, "request");
}

int plan_target_parse(struct plan_target *target, const char *text, struct stint_error *error)
{
    const char *rest = text;
    struct timestamp number; /* a decimal, in billionths */
    *target = (struct plan_target){0};
    if (skip(&rest, "deny") && !(skip(&rest, "at") && skip(&rest, "most")))
        return not_a_target(text, error);
    if (timestamp_parse_seconds(&number, next_word(&rest), NULL) != 0)
        return not_a_target(text, error);
    target->is_percent = skip(&rest, "%");
    (void)skip(&rest, "of");
    if (!read_of(target, next_word(&rest)) || next_word(&rest).len > 0)
        return not_a_target(text, error);
    if (target->is_percent && number.ns > 100 * BILLION)
        return err_set(error, STINT_E_RANGE, "'%s' is more than all of them", text);
    if (!target->is_percent && number.ns % BILLION != 0)
        return err_set(error, STINT_E_RANGE, "expected a whole number or a percentage, found '%s'",
                       text);
    target->number = target->is_percent ? number.ns : number.ns / BILLION;
    return 0;
}

uint64_t plan_target_most(const struct plan_target *target, uint64_t n_all)
{
    if (!target->is_percent)
        return min_u64(target->number, n_all);
    return mul_div(n_all, target->number, 100 * BILLION);
}
