/* SPDX-License-Identifier: MIT */
/* Files of rules as texts in a test, and what descriptors meet in them. */
#ifndef STINT_TESTS_TEST_RULES_H
#define STINT_TESTS_TEST_RULES_H

#include "unit/test_quota.h"

#include "rules/yaml/rules_load.h"

#define FILES_MAX 4

static inline size_t files_of(struct rules_file *files, const char *const *texts)
{
    static const char *const names[FILES_MAX] = {"a.yaml", "b.yaml", "c.yaml", "d.yaml"};
    size_t n = 0;
    for (; texts[n] != NULL; n++) {
        assert_true(n < FILES_MAX);
        files[n] = (struct rules_file){.path = names[n], .text = span_of_text(texts[n])};
    }
    return n;
}

/* The rules of texts that must be without fault; `texts` ends with NULL. */
static inline struct rules *rules_of_files(const char *const *texts,
                                           const struct rules_load_options *options)
{
    struct rules_file files[FILES_MAX];
    struct rules_diagnostics diagnostics;
    struct rules *rules = rules_load(files, files_of(files, texts), options, &diagnostics);
    if (rules == NULL)
        fail_msg("%s:%u:%u: %s", diagnostics.diagnostics[0].file,
                 (unsigned)diagnostics.diagnostics[0].line,
                 (unsigned)diagnostics.diagnostics[0].column, diagnostics.diagnostics[0].message);
    assert_int_equal(diagnostics.n_diagnostics + diagnostics.n_more, 0);
    rules_diagnostics_free(&diagnostics);
    return rules;
}

static inline struct rules *rules_of(const char *text)
{
    const char *texts[] = {text, NULL};
    return rules_of_files(texts, NULL);
}

#endif
