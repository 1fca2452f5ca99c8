/* SPDX-License-Identifier: MIT */
/* Counts edits: letters inserted, left out or replaced, and neighbours swapped. */
#include "algorithm/nearest.h"

#include "algorithm/text.h"

#include <assert.h>

#define NEAREST_MAX 8
#define WORD_MAX 32 /* longer words are not compared: every known name is shorter */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t edits_between(struct span word, const char *name, size_t name_len)
{
    assert(word.len <= WORD_MAX && name_len <= WORD_MAX);
    /* Row i holds the edits from the word's first i letters to each beginning of the name. */
    size_t rows[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t j = 0; j <= name_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= word.len; i++) {
        rows[i][0] = i;
        for (size_t j = 1; j <= name_len; j++) {
            size_t replaced = rows[i - 1][j - 1] + (word.ptr[i - 1] != (uint8_t)name[j - 1]);
            size_t edits = least(replaced, least(rows[i - 1][j], rows[i][j - 1]) + 1);
            if (i > 1 && j > 1 && word.ptr[i - 1] == (uint8_t)name[j - 2] &&
                word.ptr[i - 2] == (uint8_t)name[j - 1])
                edits = least(edits, rows[i - 2][j - 2] + 1);
            rows[i][j] = edits;
        }
    }
    assert(rows[word.len][name_len] <= (word.len > name_len ? word.len : name_len));
    return rows[word.len][name_len];
}

int nearest_name(struct span word, const char *const *names, size_t n_names)
{
    int best = -1;
    size_t best_edits = word.len / 3 + 1; /* a third of the letters, and one more, may be wrong */
    if (word.len == 0 || word.len > WORD_MAX)
        return -1;
    for (size_t i = 0; i < n_names; i++) {
        size_t name_len = text_span(names[i]).len;
        if (name_len > WORD_MAX)
            continue;
        size_t edits = edits_between(word, names[i], name_len);
        if (edits < name_len && (edits < best_edits || (edits == best_edits && best < 0))) {
            best = (int)i;
            best_edits = edits;
        }
    }
    return best;
}

size_t nearest_names(struct span word, const char *const *names, size_t n_names,
                     const char **nearest, size_t max)
{
    size_t edits[NEAREST_MAX], n_nearest = 0;
    assert(max <= NEAREST_MAX);
    if (word.len > WORD_MAX)
        word.len = WORD_MAX;
    for (size_t i = 0; i < n_names; i++) {
        size_t name_len = least(text_span(names[i]).len, WORD_MAX);
        size_t own = edits_between(word, names[i], name_len), at = n_nearest;
        for (; at > 0 && edits[at - 1] > own; at--)
            if (at < max) {
                edits[at] = edits[at - 1];
                nearest[at] = nearest[at - 1];
            }
        if (at == max)
            continue;
        edits[at] = own;
        nearest[at] = names[i];
        n_nearest += n_nearest < max;
    }
    return n_nearest;
}
