/* SPDX-License-Identifier: MIT */
/* The request as JSON: a quota with its key, or a domain with descriptors. */
#define _GNU_SOURCE
#include "base/ns.h"
#include "cmd/client/ask.h"
#include "cmd/lib/descriptor_word.h"

/* Takes ownership of the value. */
static int put(json_t *object, const char *name, json_t *value, struct stint_error *error)
{
    if (object != NULL && json_object_set_new(object, name, value) == 0)
        return 0;
    return err_set(error, STINT_E_SYSTEM, "out of memory");
}

static int put_part(json_t *object, const char *name, const char *what, struct span text,
                    struct stint_error *error)
{
    json_t *value = json_stringn((const char *)text.ptr, text.len);
    if (value == NULL)
        return err_set(error, STINT_E_SYNTAX, "the %s is not UTF-8, as JSON must be", what);
    return put(object, name, value, error);
}

static int put_text(json_t *object, const char *name, const char *what, const char *text,
                    struct stint_error *error)
{
    return put_part(object, name, what, span_of_text(text), error);
}

static int add_entry(json_t *entries, const struct descriptor_entry *from,
                     struct stint_error *error)
{
    json_t *entry = json_object();
    int code = json_array_append_new(entries, entry) == 0
                   ? 0
                   : err_set(error, STINT_E_SYSTEM, "out of memory");
    if (code == 0)
        code = put_part(entry, "key", "name in a descriptor", from->key, error);
    return code != 0 ? code : put_part(entry, "value", "value in a descriptor", from->value, error);
}

static int add_descriptor(json_t *descriptors, char *word, struct stint_error *error)
{
    struct descriptor_entry cut[ENTRIES_MAX];
    size_t n_cut;
    json_t *entries = json_array(), *descriptor = json_pack("{s:o}", "entries", entries);
    if (json_array_append_new(descriptors, descriptor) != 0)
        return err_set(error, STINT_E_SYSTEM, "out of memory");
    int code = descriptor_word_cut(word, cut, &n_cut, error);
    for (size_t i = 0; code == 0 && i < n_cut; i++)
        code = add_entry(entries, &cut[i], error);
    return code;
}

static int put_whom(json_t *body, struct ask_options *options, struct stint_error *error)
{
    if (options->quota != NULL) {
        int code = put_text(body, "quota", "SPEC", options->quota, error);
        return code != 0 ? code : put_text(body, "key", "KEY", options->words[0], error);
    }
    json_t *descriptors = json_array();
    int code = put_text(body, "domain", "DOMAIN", options->domain, error);
    for (size_t i = 0; code == 0 && i < options->n_words; i++)
        code = add_descriptor(descriptors, options->words[i], error);
    if (code == 0)
        return put(body, "descriptors", descriptors, error);
    json_decref(descriptors);
    return code;
}

json_t *ask_body(struct ask_options *options, struct stint_error *error)
{
    json_t *body = json_object();
    int code = put_whom(body, options, error);
    uint64_t wait_ms = options->wait_ns / NS_PER_MS + (options->wait_ns % NS_PER_MS != 0);
    if (code == 0 && options->cost > 0)
        code = put(body, "cost", json_integer((json_int_t)options->cost), error);
    if (code == 0 && wait_ms > 0)
        code = put(body, "wait_ms", json_integer((json_int_t)wait_ms), error);
    if (code == 0 && options->id != NULL)
        code = put_text(body, "request_id", "ID", options->id, error);
    if (code == 0)
        return body;
    json_decref(body);
    return NULL;
}
