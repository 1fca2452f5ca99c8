/* SPDX-License-Identifier: MIT */
/*
 * Any text as a SPEC: refused with a message, or a quota that is sane, that reads back from its
 * own text as the same quota, and whose state survives a few asks.
 */
#include "bytes.h"
#include "stint.h"

#define TEXT_MAX 512

static void check_refusal(int code, const struct stint_error *error)
{
    MUST(code == STINT_E_SYNTAX || code == STINT_E_RANGE || code == STINT_E_MISMATCH);
    MUST(error->code == code);
    MUST(error->message[0] != '\0');
    MUST(memchr(error->message, '\0', sizeof(error->message)) != NULL);
}

static void check_sane(const struct stint_quota *quota)
{
    uint64_t most = stint_max_in_any_window(quota);
    MUST(quota->period_ns >= 1000 && quota->period_ns <= UINT64_C(3650) * 86400 * 1000000000);
    MUST(stint_state_size(quota) > 0 && stint_state_size(quota) <= 65536);
    MUST(stint_algorithm_name(quota->algorithm) != NULL);
    MUST(quota->when_full <= STINT_FULL_ALLOW);
    if (stint_is_strict(quota))
        MUST(most == quota->limit);
    else
        MUST(most >= quota->limit || quota->algorithm == STINT_GCRA);
    if (quota->algorithm == STINT_GCRA && quota->limit > 0)
        MUST(quota->burst > 0 && most >= quota->burst);

    struct stint_quota again = *quota;
    MUST(stint_quota_check(&again, NULL) == STINT_OK);
    MUST(memcmp(&again, quota, sizeof(again)) == 0);
}

/* Its text, also when there is too little room for it, is the same quota. */
static void check_round_trip(const struct stint_quota *quota, uint8_t space)
{
    char text[TEXT_MAX], cut[256];
    struct stint_quota again;
    size_t len = stint_quota_format(quota, text, sizeof(text));
    MUST(len < sizeof(text) && strlen(text) == len);
    MUST(stint_quota_parse(&again, text, NULL) == STINT_OK);
    MUST(memcmp(&again, quota, sizeof(again)) == 0);
    MUST(stint_quota_format(quota, NULL, 0) == len);
    MUST(stint_quota_format(quota, cut, space) == len);
    if (space > 0)
        MUST(strlen(cut) < space && memcmp(cut, text, strlen(cut)) == 0);
}

static void check_asks(const struct stint_quota *quota, struct span bytes)
{
    uint32_t capacity = quota->algorithm == STINT_GCRA ? quota->burst : quota->limit;
    void *state = aligned_alloc(16, (stint_state_size(quota) + 15) / 16 * 16);
    MUST(state != NULL);
    uint64_t now_ns = bytes_number(&bytes, 7) % (STINT_NOW_MAX + 1);
    stint_state_init(quota, state, now_ns);
    for (int i = 0; i < 16; i++) {
        uint8_t kind = bytes_u8(&bytes);
        struct stint_ask ask = {.now_ns = now_ns,
                                .at_ns = now_ns,
                                .cost = kind & 8 ? bytes_u32(&bytes) : kind >> 4,
                                .verb = kind % (STINT_UNBOOK + 1)};
        struct stint_decision decision = stint_state_ask(quota, state, &ask);
        MUST(decision.outcome <= STINT_NEVER);
        MUST(decision.limit == capacity || decision.outcome == STINT_NEVER || capacity == 0);
        MUST(decision.remaining <= decision.limit);
        MUST(decision.granted <= ask.cost);
        MUST((decision.outcome == STINT_NEVER) == (decision.retry_after_ns == STINT_NEVER_NS));
        if (decision.outcome == STINT_DENY && decision.retry_after_ns <= STINT_NOW_MAX - now_ns)
            now_ns += kind & 1 ? decision.retry_after_ns : 1;
    }
    free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stint_quota quota;
    struct stint_error error;
    char *spec = malloc(size + 1);
    MUST(spec != NULL);
    if (size > 0)
        memcpy(spec, data, size);
    spec[size] = '\0';
    int code = stint_quota_parse(&quota, spec, &error);
    if (code != STINT_OK) {
        check_refusal(code, &error);
        MUST(stint_quota_parse(&quota, spec, NULL) == code);
    } else {
        check_sane(&quota);
        check_round_trip(&quota, size > 0 ? data[size - 1] : 0);
        check_asks(&quota, span_of(data, size));
    }
    free(spec);
    return 0;
}
