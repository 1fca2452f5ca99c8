/* SPDX-License-Identifier: MIT */
/*
 * Any bytes of a peer, as what a link receives: in pieces, over time, and over connections that
 * end. A byte says what the next step is.
 */
#ifndef STINT_FUZZ_LINK_STEPS_H
#define STINT_FUZZ_LINK_STEPS_H

#include "bytes.h"

#include "backend/wire/backend_link.h"

struct link_steps {
    struct link *link;
    uint64_t now_ns;
    void (*connecting)(void *arg); /* before a socket is connected */
    void (*act)(void *arg, unsigned what);
    void *arg;
};

static inline void link_step(struct link_steps *steps, struct span *input)
{
    uint8_t what = bytes_u8(input);
    size_t len = what & 63u;
    struct link *link = steps->link;
    if (link_wants(link) == LINK_WANTS_SOCKET) {
        steps->connecting(steps->arg);
        link_dialling(link, steps->now_ns);
        link_connected(link, steps->now_ns);
    } else if (link_wants(link) == LINK_WANTS_CLOSE) {
        MUST(link_fault(link)[0] != '\0');
        link_lost(link, NULL, steps->now_ns);
    }
    link_sent(link, link_output(link).len);
    if (what >= 192) {
        steps->now_ns += (uint64_t)len * len * NS_PER_S / 8;
        link_wake(link, steps->now_ns);
    } else if (what >= 160) {
        steps->act(steps->arg, what);
    } else {
        len = len < input->len ? len : input->len;
        uint8_t *copy = bytes_copy(span_of(input->ptr, len));
        link_feed(link, span_of(copy, len), steps->now_ns);
        *input = span_after(*input, len);
        free(copy);
    }
}

#endif
