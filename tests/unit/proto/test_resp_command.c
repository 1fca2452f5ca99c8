/* SPDX-License-Identifier: MIT */
/* The table of commands, and arguments as requests: every word in its place, refused elsewhere. */
#include "unit/test_quota.h"

#include "proto/resp/resp_reader.h"
#include "proto/resp/resp_request.h"

#include <ctype.h>

#define ARGUMENTS 256

static struct span args[ARGUMENTS];
static uint8_t space[RESP_LINE_MAX];
static struct resp_argv argv = {args, 0, space};
static struct resp_lists lists;
static struct request request;
static struct stint_error error;

static int read_text(const char *text)
{
    assert_int_equal(resp_line_split(span_of_text(text), ARGUMENTS, &argv), 0);
    const struct resp_command *command = resp_command_find(argv.args[0]);
    assert_non_null(command);
    assert_true(resp_command_takes(command, argv.n));
    memset(&request, 0xaa, sizeof(request));
    memset(&lists, 0xaa, sizeof(lists));
    error.message[0] = '\0';
    return resp_request_read(command, argv.args, argv.n, &lists, &request, &error);
}

static void assert_read(const char *text)
{
    if (read_text(text) != 0)
        fail_msg("%s: %s", text, error.message);
}

static void assert_refused(const char *text, const char *why)
{
    assert_true(read_text(text) < 0);
    if (strstr(error.message, why) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, error.message, why);
}

static void assert_span(struct span span, const char *text)
{
    if (span.len != strlen(text) || memcmp(span.ptr, text, span.len) != 0)
        fail_msg("\"%.*s\" is not \"%s\"", (int)span.len, (const char *)span.ptr, text);
}

/* ---- The table ------------------------------------------------------------------------------- */

TEST(every_command_is_found_by_its_name_in_any_case)
{
    for (size_t i = 0; i < RESP_COMMANDS; i++) {
        const struct resp_command *command = &resp_commands[i];
        char name[32];
        assert_non_null(command->name);
        assert_int_equal(strlen(command->name), command->name_len);
        assert_ptr_equal(resp_command_find(span_of_text(command->name)), command);
        for (size_t c = 0; c <= command->name_len; c++)
            name[c] = (char)toupper(command->name[c]);
        assert_ptr_equal(resp_command_find(span_of_text(name)), command);
        if (i > 0)
            assert_true(command->name_len >= resp_commands[i - 1].name_len);
    }
}

TEST(no_other_name_is_found)
{
    static const char *const strange[] = {
        "",
        "p",
        "pin",
        "pingg",
        "cl.throttlE2",
        "get",
        "stint.tak3",
        "\x90ing",
        "stint.takeupto1",
        "stint_take",
        "Cl.throttl",
        "Cl.throttlf",
        "CL\x0eTHROTTLE",
        "stint.setquotas",
        "[uit",
    };
    for (size_t i = 0; i < N(strange); i++)
        assert_null(resp_command_find(span_of_text(strange[i])));
}

TEST(arity_counts_the_name)
{
    const struct resp_command *throttle = &resp_commands[RESP_THROTTLE];
    const struct resp_command *select = &resp_commands[RESP_SELECT];
    assert_false(resp_command_takes(throttle, 4));
    assert_true(resp_command_takes(throttle, 5));
    assert_true(resp_command_takes(throttle, 6));
    assert_true(resp_command_takes(select, 2));
    assert_false(resp_command_takes(select, 1));
    assert_false(resp_command_takes(select, 3));
}

/* ---- CL.THROTTLE ----------------------------------------------------------------------------- */

TEST(throttle_reads_its_numbers)
{
    assert_read("cl.throttle user 15 30 60");
    assert_int_equal(request.verb, REQUEST_THROTTLE);
    assert_span(request.key, "user");
    assert_int_equal(request.throttle.max_burst, 15);
    assert_int_equal(request.throttle.count_per_period, 30);
    assert_int_equal(request.throttle.period_s, 60);
    assert_int_equal(request.cost, 1);
    assert_read("CL.THROTTLE user 0 9223372036854775807 1 0");
    assert_int_equal(request.throttle.count_per_period, INT64_MAX);
    assert_int_equal(request.cost, 0);
    assert_read("CL.THROTTLE '' 4294967294 1 1 4294967295");
    assert_int_equal(request.cost, UINT32_MAX);
    assert_int_equal(request.key.len, 0);
}

TEST(throttle_refuses_what_is_no_number_in_its_range)
{
    assert_refused("CL.THROTTLE k -2 1 1",
                   "max_burst must be a whole number from -1 to 4294967294, not -2");
    assert_refused("CL.THROTTLE k 4294967295 1 1", "max_burst");
    assert_refused("CL.THROTTLE k 1 -1 1", "count_per_period must be a whole number from 1");
    assert_refused("CL.THROTTLE k 1 1 -5",
                   "period must be a whole number from 1 to 9223372036, not -5");
    assert_read("CL.THROTTLE k 1 1 9223372036");
    assert_refused("CL.THROTTLE k 1 1 9223372037",
                   "period must be a whole number from 1 to 9223372036, not 9223372037");
    assert_false(strstr(error.message, "larger units") != NULL);
    assert_refused("CL.THROTTLE k 1 1 1 4294967296", "quantity must be");
    assert_refused("CL.THROTTLE k 1 1 1 -1", "quantity must be");
}

TEST(throttle_refuses_in_the_words_of_redis_cell)
{
    const char *const no_numbers[] = {
        "1.5", "''", "x", "+", "-", "+-1", "9223372036854775808", "99999999999999999999",
    };
    for (size_t i = 0; i < sizeof(no_numbers) / sizeof(*no_numbers); i++)
        for (int at = 0; at < 4; at++) {
            char line[128];
            snprintf(line, sizeof(line), "CL.THROTTLE k %s %s %s %s", at == 0 ? no_numbers[i] : "1",
                     at == 1 ? no_numbers[i] : "0", at == 2 ? no_numbers[i] : "1",
                     at == 3 ? no_numbers[i] : "1");
            assert_refused(line, "error: Store error: Couldn't parse as integer: ");
        }
    assert_refused("CL.THROTTLE k 1.5 1 1", "integer: 1.5: max_burst is an integer");
    assert_refused("CL.THROTTLE k 1 0 1", "error: Store error: Zero rates are not supported");
    assert_refused("CL.THROTTLE k 1 1 0", "error: Store error: Zero rates are not supported");
    assert_refused("CL.THROTTLE k 1 1 1 1 1", "error: Store error: Usage: cl.throttle <key>");
}

TEST(throttle_reads_signs_as_redis_cell)
{
    assert_read("CL.THROTTLE k +5 +07 +60 -0");
    assert_int_equal(request.throttle.max_burst, 5);
    assert_int_equal(request.throttle.count_per_period, 7);
    assert_int_equal(request.throttle.period_s, 60);
    assert_int_equal(request.cost, 0);
    assert_read("CL.THROTTLE k -1 7 60");
    assert_int_equal(request.throttle.max_burst, -1);
}

/* ---- Targets --------------------------------------------------------------------------------- */

TEST(quotas_bring_their_keys)
{
    assert_read("STINT.TAKE QUOTA 'gcra 10/1s burst=2' a QUOTA 100/1m b");
    assert_int_equal(request.verb, REQUEST_TAKE);
    assert_int_equal(request.n_items, 2);
    assert_int_equal(request.n_descriptors, 0);
    assert_span(request.items[0].quota, "gcra 10/1s burst=2");
    assert_span(request.items[0].key, "a");
    assert_span(request.items[1].quota, "100/1m");
    assert_span(request.items[1].key, "b");
    assert_false(request.items[0].has_cost);
    assert_int_equal(request.cost, 1);
    assert_int_equal(request.wait_ns, 0);
    assert_int_equal(request.id.len, 0);
}

TEST(descriptors_are_pairs_in_a_domain)
{
    assert_read(
        "stint.take DOMAIN shop DESCRIPTOR 2 path /a ip 1.2.3.4 DESCRIPTOR 1 user bob COST 3");
    assert_span(request.domain, "shop");
    assert_int_equal(request.n_descriptors, 2);
    assert_int_equal(request.n_items, 0);
    assert_int_equal(request.descriptors[0].n_entries, 2);
    assert_span(request.descriptors[0].entries[1].key, "ip");
    assert_span(request.descriptors[0].entries[1].value, "1.2.3.4");
    assert_false(request.descriptors[0].has_hits);
    assert_null(request.descriptors[0].override);
    assert_false(request.descriptors[0].is_refund);
    assert_span(request.descriptors[1].entries[0].value, "bob");
    assert_true(request.descriptors[1].has_hits);
    assert_int_equal(request.descriptors[1].hits, 3);
}

TEST(a_cost_is_of_what_it_follows)
{
    assert_read("STINT.TAKE COST 5 QUOTA 10/1s a COST 2 QUOTA 10/1s b");
    assert_int_equal(request.cost, 5);
    assert_true(request.items[0].has_cost);
    assert_int_equal(request.items[0].cost, 2);
    assert_false(request.items[1].has_cost);
    assert_read("STINT.TAKE QUOTA 10/1s a WAIT 5 COST 7");
    assert_int_equal(request.cost, 7);
    assert_false(request.items[0].has_cost);
    assert_read("STINT.TAKE QUOTA 10/1s a COST 0 WAIT 5 COST 4294967295");
    assert_int_equal(request.items[0].cost, 0);
    assert_int_equal(request.cost, UINT32_MAX);
    assert_refused("STINT.TAKE COST 1 QUOTA 10/1s a WAIT 5 COST 3", "COST is given twice");
    assert_refused("STINT.TAKE QUOTA 10/1s a COST 1 COST 2", "COST is given twice");
    assert_refused("STINT.TAKE DOMAIN d DESCRIPTOR 1 a b COST 1 COST 2", "COST is given twice");
    assert_refused("STINT.TAKE QUOTA 10/1s a COST -1", "COST must be a whole number from 0");
}

TEST(a_key_may_read_like_a_word)
{
    assert_read("STINT.TAKE QUOTA 10/1s WAIT WAIT 5 ID ID");
    assert_span(request.items[0].key, "WAIT");
    assert_int_equal(request.wait_ns, 5 * MS);
    assert_span(request.id, "ID");
    assert_read("STINT.TAKE DOMAIN QUOTA DESCRIPTOR 1 COST QUOTA");
    assert_span(request.domain, "QUOTA");
    assert_span(request.descriptors[0].entries[0].key, "COST");
}

TEST(a_target_is_whole_and_of_one_kind)
{
    assert_refused("STINT.TAKE QUOTA 1/1s k QUOTA 1/1s", "after QUOTA the key is missing");
    assert_refused("STINT.TAKE COST 2 COST 2", "given twice");
    assert_refused("STINT.TAKE COST 2 WAIT 2", "QUOTA or DOMAIN is missing");
    assert_refused("STINT.TAKE DOMAIN '' DESCRIPTOR 1 a b", "after DOMAIN a name is missing");
    assert_refused("STINT.TAKE DOMAIN d ID x", "after DOMAIN a DESCRIPTOR is missing");
    assert_refused("STINT.TAKE DESCRIPTOR 1 a b", "QUOTA or DOMAIN is missing");
    assert_refused("STINT.TAKE DOMAIN d DESCRIPTOR 2 a b c", "a key or a value is missing");
    assert_refused("STINT.TAKE DOMAIN d DESCRIPTOR 2 a b '' c",
                   "entry 2 of a DESCRIPTOR: expected a key that is not empty");
    assert_refused("STINT.TAKE DOMAIN d DESCRIPTOR 0", "DESCRIPTOR must be a whole number from 1");
    assert_refused("STINT.TAKE DOMAIN d DESCRIPTOR 33 a", "from 1 to 32");
    assert_refused("STINT.TAKE DOMAIN d DOMAIN e DESCRIPTOR 1 a b", "DOMAIN is given twice");
    assert_refused("STINT.TAKE DOMAIN d DESCRIPTOR 1 a b QUOTA 1/1s k", "exclude each other");
}

TEST(more_than_a_request_can_hold_is_refused)
{
    char text[4096];
    for (int quotas = 0; quotas < 2; quotas++) {
        for (int n = 32; n <= 33; n++) {
            int len = sprintf(text, "STINT.PEEK %s", quotas ? "" : "DOMAIN d");
            for (int i = 0; i < n; i++)
                len += sprintf(text + len, quotas ? " QUOTA 1/1s %d" : " DESCRIPTOR 1 k %d", i);
            if (n == 32)
                assert_read(text);
            else
                assert_refused(text, "at most 32 times");
        }
    }
}

/* ---- Options --------------------------------------------------------------------------------- */

TEST(each_verb_has_its_options)
{
    assert_read("STINT.RESERVE QUOTA 1/1s k LIFETIME 1500 WAIT 20 ID abc");
    assert_int_equal(request.verb, REQUEST_RESERVE);
    assert_int_equal(request.lifetime_ns, 1500 * MS);
    assert_int_equal(request.wait_ns, 20 * MS);
    assert_span(request.id, "abc");
    assert_read("STINT.BOOK QUOTA 1/1s k MAXWAIT 0");
    assert_int_equal(request.verb, REQUEST_BOOK);
    assert_int_equal(request.lifetime_ns, 0);
    assert_read("STINT.REFUND QUOTA 1/1s k AT 123456789012345678");
    assert_true(request.has_granted_at);
    assert_int_equal(request.granted_at_ns, 123456789012345678);
    assert_read("STINT.REFUND QUOTA 1/1s k");
    assert_false(request.has_granted_at);
    assert_read("STINT.BLOCK FOR 60000 QUOTA 1/1s k");
    assert_int_equal(request.verb, REQUEST_BLOCK);
    assert_int_equal(request.lifetime_ns, 60 * S);
    assert_read("STINT.SETQUOTA QUOTA 1/1s k TO 'window 5/1s'");
    assert_span(request.quota, "window 5/1s");
    assert_read("STINT.SETQUOTA DEFAULT DOMAIN d DESCRIPTOR 1 a b");
    assert_int_equal(request.quota.len, 0);
    assert_read("STINT.CHARGE QUOTA 1/1s k ID 1");
    assert_read("STINT.TAKEUPTO QUOTA 1/1s k WAIT 86400000");
    assert_read("STINT.PEEK QUOTA 1/1s k");
    assert_read("STINT.RESET QUOTA 1/1s k");
    assert_read("STINT.EXPLAIN QUOTA 1/1s k");
}

TEST(options_of_other_verbs_are_refused)
{
    assert_refused("STINT.PEEK QUOTA 1/1s k WAIT 5", "expected QUOTA, DOMAIN, DESCRIPTOR or COST");
    assert_refused("STINT.TAKE QUOTA 1/1s k LIFETIME 5", "or ID, not 'LIFETIME'");
    assert_refused("STINT.TAKE QUOTA 1/1s k AT 5", "not 'AT'");
    assert_refused("STINT.TAKE QUOTA 1/1s k FOO", "not 'FOO'");
    assert_refused("STINT.TAKE 10/1s k COST", "not '10/1s'");
    assert_refused("STINT.RESET QUOTA 1/1s k ID x", "not 'ID'");
}

TEST(what_a_verb_needs_must_be_there)
{
    assert_refused("STINT.RESERVE QUOTA 1/1s k WAIT 5", "LIFETIME is missing");
    assert_refused("STINT.BOOK QUOTA 1/1s k ID x", "MAXWAIT is missing");
    assert_refused("STINT.BLOCK QUOTA 1/1s k COST 5", "FOR is missing");
    assert_refused("STINT.SETQUOTA QUOTA 1/1s k COST 1", "either TO or DEFAULT");
    assert_refused("STINT.SETQUOTA QUOTA 1/1s k TO 2/1s DEFAULT", "either TO or DEFAULT");
    assert_refused("STINT.SETQUOTA QUOTA 1/1s k TO ''", "after TO a spec is missing");
    assert_refused("STINT.RESERVE ID x QUOTA 1/1s k LIFETIME",
                   "after LIFETIME a number is missing");
    assert_refused("STINT.RESERVE QUOTA 1/1s k LIFETIME 0", "LIFETIME must be");
    assert_refused("STINT.TAKE QUOTA 1/1s k WAIT 86400001", "WAIT must be");
    assert_refused("STINT.TAKE QUOTA 1/1s k WAIT 1 WAIT 1", "WAIT is given twice");
    assert_refused("STINT.TAKE QUOTA 1/1s k ID ''", "ID must have 1 to 128 bytes");
    assert_refused("STINT.BLOCK QUOTA 1/1s k FOR 315360000001", "FOR must be");
    assert_refused("STINT.REFUND QUOTA 1/1s k AT 576460752303423488", "AT must be");
}

TEST(tickets_are_32_digits_or_longer)
{
    assert_read("STINT.SETTLE 00000000000000fFfedcba9876543210 7 ID x");
    assert_int_equal(request.verb, REQUEST_SETTLE);
    assert_int_equal(request.ticket.slot, 0xff);
    assert_int_equal(request.ticket.nonce, 0xfedcba9876543210);
    assert_int_equal(request.cost, 7);
    assert_read("STINT.CANCEL 00000000000000fffedcba9876543210");
    assert_int_equal(request.verb, REQUEST_CANCEL);
    assert_read("STINT.RENEW 00000000000000fffedcba9876543210");
    assert_int_equal(request.verb, REQUEST_RENEW);
    assert_int_equal(request.ticket_text.len, 0);
    assert_read("STINT.RENEW 0000000000000Gfffedcba9876543210x"); /* a store's may say anything */
    assert_int_equal(request.ticket_text.len, 33);
    assert_refused("STINT.CANCEL 00000000000000fffedcba987654321", "a ticket");
    assert_refused("STINT.CANCEL 000000000000000gfedcba9876543210", "a ticket");
    assert_refused("STINT.SETTLE 00000000000000fffedcba9876543210 x", "what was used");
    assert_refused("STINT.CANCEL 00000000000000fffedcba9876543210 WAIT 5", "expected ID");
}
