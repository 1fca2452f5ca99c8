/* SPDX-License-Identifier: MIT */
/* The engine, and what the extension needs of its insides: the texts of `stint explain`. */
#include "stint.c"

void engine_text(const struct stint_quota *quota, int part, char *text, size_t size);

void engine_text(const struct stint_quota *quota, int part, char *text, size_t size)
{
    static void (*const labels[])(struct buf * buf, const struct stint_quota *quota) = {
        label_algorithm, label_bound, label_slack, label_wait, label_bytes,
    };
    text[0] = '\0';
    struct buf buf = buf_of(text, size);
    labels[part](&buf, quota);
}
