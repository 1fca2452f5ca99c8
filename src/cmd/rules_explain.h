/* SPDX-License-Identifier: MIT */
/* What `stint rules explain` was asked, and what came of it, between its two files. */
#ifndef STINT_CMD_RULES_EXPLAIN_H
#define STINT_CMD_RULES_EXPLAIN_H

#include "rules/question.h"

struct explained {
    const char *domain;
    bool has_domain; /* the rules know it */
    const struct descriptor *descriptors;
    const struct question *question;
    struct stint_decision decision; /* of the request as a whole */
};

void rules_explain_text(const struct explained *explained);
int rules_explain_json(const struct explained *explained);

#endif
