/* SPDX-License-Identifier: MIT */
/*
 * Runs vectors (README.md beside this file) on caller-owned states, through the public header only.
 *
 *     run_vectors FILE…     exit code 0: all as expected; 1: a difference; 2: a file is unreadable
 *
 * It reads the JSON of this format and no other, so that it needs nothing but libc on any machine.
 */
#include "stint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 65536
#define WORD_MAX_BYTES 256
#define STATE_ALIGN 16

enum exit_code { AS_EXPECTED = 0, DIFFERENT = 1, UNREADABLE = 2 };

/* Where reading has come to, and how to name it in a complaint. */
struct reader {
    const char *path;
    unsigned line;
    const char *at;
};

/* What a step may say. A field that is absent is not compared. */
enum field { OUTCOME, GRANTED, REMAINING, RETRY_AFTER, RESET_AFTER, N_FIELDS };

static const char *const field_names[N_FIELDS] = {
    [OUTCOME] = "outcome",         [GRANTED] = "granted",         [REMAINING] = "remaining",
    [RETRY_AFTER] = "retry_after", [RESET_AFTER] = "reset_after",
};

static const char *const outcome_names[] = {
    [STINT_ALLOW] = "allow",
    [STINT_DENY] = "deny",
    [STINT_NEVER] = "never",
};

static const char *const verb_names[] = {
    [STINT_TAKE] = "take",     [STINT_TAKE_UPTO] = "take_upto", [STINT_PEEK] = "peek",
    [STINT_CHARGE] = "charge", [STINT_REFUND] = "refund",       [STINT_BOOK] = "book",
    [STINT_UNBOOK] = "unbook",
};

struct step {
    struct stint_ask ask; /* times in the vector's unit until scale_step() */
    uint64_t want[N_FIELDS];
    bool wants[N_FIELDS];
};

struct sequence {
    struct stint_quota quota;
    uint64_t unit_ns;
    void *space, *state; /* room is what to free, state lies aligned in it */
    unsigned steps;
};

static void unreadable(const struct reader *reader, const char *expected)
{
    fprintf(stderr, "%s:%u: expected %s at \"%.40s\"\n", reader->path, reader->line, expected,
            reader->at);
    exit(UNREADABLE);
}

static void skip_space(struct reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

/* Takes the character if it comes next. */
static bool accept(struct reader *reader, char wanted)
{
    skip_space(reader);
    if (*reader->at != wanted)
        return false;
    reader->at++;
    return true;
}

static void expect(struct reader *reader, char wanted)
{
    char text[2] = {wanted, '\0'};
    if (!accept(reader, wanted))
        unreadable(reader, text);
}

static void read_text(struct reader *reader, char word[WORD_MAX_BYTES])
{
    expect(reader, '"');
    size_t len = strcspn(reader->at, "\"\\");
    if (len >= WORD_MAX_BYTES || reader->at[len] != '"')
        unreadable(reader, "a short text without escapes");
    memcpy(word, reader->at, len);
    word[len] = '\0';
    reader->at += len + 1;
}

static uint64_t read_number(struct reader *reader)
{
    skip_space(reader);
    uint64_t number = 0;
    if (*reader->at < '0' || *reader->at > '9')
        unreadable(reader, "a whole number");
    for (; *reader->at >= '0' && *reader->at <= '9'; reader->at++) {
        uint64_t digit = (uint64_t)(*reader->at - '0');
        if (number > (UINT64_MAX - digit) / 10)
            unreadable(reader, "a number of at most 64 bits");
        number = number * 10 + digit;
    }
    return number;
}

/* A number, or null for a wait that never ends. */
static uint64_t read_wait(struct reader *reader)
{
    skip_space(reader);
    if (strncmp(reader->at, "null", 4) != 0)
        return read_number(reader);
    reader->at += 4;
    return STINT_NEVER_NS;
}

static unsigned index_of(struct reader *reader, const char *word, const char *const *names,
                         size_t n_names)
{
    for (unsigned i = 0; i < n_names; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    unreadable(reader, "a name this runner knows");
    return 0;
}

#define INDEX_OF(reader, word, names)                                                              \
    index_of(reader, word, names, sizeof(names) / sizeof((names)[0]))

static void read_expectation(struct reader *reader, struct step *step)
{
    char word[WORD_MAX_BYTES];
    expect(reader, '{');
    do {
        read_text(reader, word);
        expect(reader, ':');
        unsigned field = INDEX_OF(reader, word, field_names);
        step->wants[field] = true;
        if (field == OUTCOME) {
            read_text(reader, word);
            step->want[field] = INDEX_OF(reader, word, outcome_names);
        } else {
            step->want[field] = read_wait(reader);
        }
    } while (accept(reader, ','));
    expect(reader, '}');
}

static void read_step(struct reader *reader, struct step *step)
{
    char word[WORD_MAX_BYTES];
    *step = (struct step){.ask = {.cost = 1}};
    expect(reader, '{');
    do {
        read_text(reader, word);
        expect(reader, ':');
        if (strcmp(word, "now") == 0) {
            step->ask.now_ns = read_number(reader);
        } else if (strcmp(word, "cost") == 0) {
            step->ask.cost = (uint32_t)read_number(reader);
        } else if (strcmp(word, "granted_at") == 0 || strcmp(word, "max_wait") == 0) {
            step->ask.at_ns = read_number(reader);
        } else if (strcmp(word, "verb") == 0) {
            read_text(reader, word);
            step->ask.verb = (uint8_t)INDEX_OF(reader, word, verb_names);
        } else if (strcmp(word, "expect") == 0) {
            read_expectation(reader, step);
        } else {
            unreadable(reader, "now, verb, cost, granted_at, max_wait or expect");
        }
    } while (accept(reader, ','));
    expect(reader, '}');
}

static uint64_t in_unit_up(uint64_t ns, uint64_t unit_ns)
{
    return ns == STINT_NEVER_NS ? ns : ns / unit_ns + (ns % unit_ns != 0);
}

static void complain(const struct reader *reader, const struct sequence *sequence,
                     const struct step *step, unsigned field, uint64_t got)
{
    char text[STINT_ERROR_MAX];
    stint_quota_format(&sequence->quota, text, sizeof(text));
    fprintf(stderr, "%s:%u: %s: step %u, %s of %" PRIu32 " at %" PRIu64 " ns: ", reader->path,
            reader->line, text, sequence->steps, verb_names[step->ask.verb], step->ask.cost,
            step->ask.now_ns);
    fprintf(stderr, "%s is %" PRIu64 ", expected %" PRIu64 "\n", field_names[field], got,
            step->want[field]);
}

/* True if the state answers as the step expects. Waits are rounded up to the vector's unit. */
static bool run_step(const struct reader *reader, const struct sequence *sequence,
                     struct step *step)
{
    step->ask.now_ns *= sequence->unit_ns;
    step->ask.at_ns *= sequence->unit_ns;
    struct stint_decision decision = stint_state_ask(&sequence->quota, sequence->state, &step->ask);
    const uint64_t got[N_FIELDS] = {
        [OUTCOME] = decision.outcome,
        [GRANTED] = decision.granted,
        [REMAINING] = decision.remaining,
        [RETRY_AFTER] = in_unit_up(decision.retry_after_ns, sequence->unit_ns),
        [RESET_AFTER] = in_unit_up(decision.reset_after_ns, sequence->unit_ns),
    };
    bool as_expected = true;
    for (unsigned field = 0; field < N_FIELDS; field++) {
        if (step->wants[field] && got[field] != step->want[field]) {
            complain(reader, sequence, step, field, got[field]);
            as_expected = false;
        }
    }
    return as_expected;
}

static void make_quota(const struct reader *reader, struct sequence *sequence, const char *spec)
{
    struct stint_error error;
    if (stint_quota_parse(&sequence->quota, spec, &error) != STINT_OK) {
        fprintf(stderr, "%s:%u: %s\n", reader->path, reader->line, error.message);
        exit(UNREADABLE);
    }
    size_t size = stint_state_size(&sequence->quota);
    free(sequence->space);
    sequence->space = calloc(1, size + STATE_ALIGN);
    if (sequence->space == NULL)
        unreadable(reader, "enough memory");
    size_t over = (size_t)((uintptr_t)sequence->space % STATE_ALIGN);
    sequence->state = (char *)sequence->space + (STATE_ALIGN - over);
}

/* One line; "quota" and "unit" stand before "steps". */
static bool run_sequence(struct reader *reader, struct sequence *sequence)
{
    char word[WORD_MAX_BYTES];
    bool as_expected = true;
    expect(reader, '{');
    do {
        read_text(reader, word);
        expect(reader, ':');
        if (strcmp(word, "steps") == 0 && sequence->state != NULL && sequence->unit_ns != 0) {
            expect(reader, '[');
            do {
                struct step step;
                read_step(reader, &step);
                sequence->steps++;
                as_expected = run_step(reader, sequence, &step) && as_expected;
            } while (accept(reader, ','));
            expect(reader, ']');
            continue;
        }
        const bool is_quota = strcmp(word, "quota") == 0, is_unit = strcmp(word, "unit") == 0;
        if (!is_quota && !is_unit && strcmp(word, "name") != 0)
            unreadable(reader, "name, quota, unit, and then steps");
        read_text(reader, word);
        if (is_quota)
            make_quota(reader, sequence, word);
        else if (is_unit)
            sequence->unit_ns = strcmp(word, "us") == 0 ? 1000 : 1;
    } while (accept(reader, ','));
    expect(reader, '}');
    if (sequence->steps == 0)
        unreadable(reader, "at least one step");
    return as_expected;
}

static bool run_file(const char *path, char *line)
{
    struct reader reader = {.path = path};
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        exit(UNREADABLE);
    }
    bool as_expected = true;
    unsigned long steps = 0;
    while (fgets(line, LINE_MAX_BYTES, file) != NULL) {
        struct sequence sequence = {.unit_ns = 0};
        reader.line++;
        reader.at = line;
        as_expected = run_sequence(&reader, &sequence) && as_expected;
        steps += sequence.steps;
        free(sequence.space);
    }
    fclose(file);
    if (steps == 0) {
        reader.at = "";
        unreadable(&reader, "at least one sequence");
    }
    printf("%s: %u sequences, %lu steps, %s\n", path, reader.line, steps,
           as_expected ? "as expected" : "DIFFERENT");
    return as_expected;
}

int main(int argc, char **argv)
{
    static char line[LINE_MAX_BYTES];
    bool as_expected = true;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FILE…\n", argv[0]);
        return UNREADABLE;
    }
    for (int i = 1; i < argc; i++)
        as_expected = run_file(argv[i], line) && as_expected;
    return as_expected ? AS_EXPECTED : DIFFERENT;
}
