/* SPDX-License-Identifier: MIT */
/*
 * dynamic_metadata, in the format of envoyproxy/ratelimit: the request, and the metadata of the
 * rules. It is JSON, which /json sends as it is, and gRPC as a google.protobuf.Struct.
 */
#include "proto/grpc/rls.h"

#include "base/utf8.h"

#include <jansson.h>
#include <stdlib.h>

/* ---- Metadata of the rules ------------------------------------------------------------------- */

/* Of the rules that allow; objects are merged, and else the first rule counts. NULL: no memory. */
static json_t *metadata_of_rules(const struct reply *reply)
{
    json_t *all = json_object();
    for (size_t i = reply->n_statuses; i-- > 0 && all != NULL;) {
        const struct target *status = &reply->statuses[i];
        if (rls_status_of(status).code != RLS_CODE_OK || status->is_override ||
            reply_quota(status) == NULL || status->rule == NULL || status->rule->metadata.len == 0)
            continue;
        struct span text = status->rule->metadata;
        json_t *more = json_loadb((const char *)text.ptr, text.len, JSON_ALLOW_NUL, NULL);
        if (json_object_update_recursive(all, more) != 0) {
            json_decref(all);
            all = NULL;
        }
        json_decref(more);
    }
    return all;
}

/* ---- The request ----------------------------------------------------------------------------- */

/* protobuf's strings are UTF-8, and the client's text may not be: invalid bytes become U+FFFD. */
static char *add_text(char *at, struct span text)
{
    static const char replacement[] = UTF8_REPLACEMENT;
    while (text.len > 0) {
        size_t len = utf8_length(text.ptr, text.len);
        size_t added = len > 0 ? len : sizeof(replacement) - 1;
        memcpy(at, len > 0 ? (const char *)text.ptr : replacement, added);
        at += added;
        text = span_after(text, len > 0 ? len : 1);
    }
    return at;
}

/* Three texts, joined. NULL: no memory. */
static json_t *text_value(struct span first, const char *between, struct span last)
{
    size_t size = (first.len + strlen(between) + last.len) * (sizeof(UTF8_REPLACEMENT) - 1) + 1;
    char *text = malloc(size);
    if (text == NULL)
        return NULL;
    const char *end = add_text(add_text(add_text(text, first), span_of_text(between)), last);
    json_t *value = json_stringn_nocheck(text, (size_t)(end - text));
    free(text);
    return value;
}

/* In protobuf's text format. */
static json_t *limit_value(const struct stint_quota *quota)
{
    struct rls_limit limit = rls_limit_of(quota);
    const char *unit = rls_unit_names[limit.unit];
    return limit.unit_multiplier == 1
               ? json_sprintf("requests_per_unit:%u unit:%s", limit.requests_per_unit, unit)
               : json_sprintf("requests_per_unit:%u unit:%s unit_multiplier:{value:%u}",
                              limit.requests_per_unit, unit, limit.unit_multiplier);
}

/* The object, or NULL where one of its members could not be made. */
static json_t *unless(int failed, json_t *object)
{
    if (failed == 0)
        return object;
    json_decref(object);
    return NULL;
}

/* Jansson's functions fail where they are given NULL. */
static json_t *descriptor_value(const struct descriptor *descriptor)
{
    json_t *object = json_object(), *entries = json_array();
    int failed = 0;
    for (size_t i = 0; i < descriptor->n_entries; i++)
        failed |= json_array_append_new(
            entries, text_value(descriptor->entries[i].key, "=", descriptor->entries[i].value));
    failed |= json_object_set_new(object, "entries", entries);
    if (descriptor->override != NULL)
        failed |= json_object_set_new(object, "limit", limit_value(descriptor->override));
    if (descriptor->has_hits)
        failed |= json_object_set_new(object, "hitsAddend", json_integer(descriptor->hits));
    return unless(failed, object);
}

json_t *rls_metadata(uint32_t hits_addend, const struct request *request, const struct reply *reply)
{
    json_t *object = json_object(), *descriptors = json_array(), *rules = metadata_of_rules(reply);
    int failed = rules == NULL;
    for (size_t i = 0; i < request->n_descriptors; i++)
        failed |= json_array_append_new(descriptors, descriptor_value(&request->descriptors[i]));
    failed |=
        json_object_set_new(object, "domain", text_value(request->domain, "", span_of("", 0)));
    failed |= json_object_set_new(object, "descriptors", descriptors);
    if (hits_addend != 0)
        failed |= json_object_set_new(object, "hitsAddend", json_integer(hits_addend));
    if (json_object_size(rules) > 0)
        failed |= json_object_set(object, "metadata", rules);
    json_decref(rules);
    return unless(failed, object);
}

/* ---- As a google.protobuf.Struct ------------------------------------------------------------- */

/*
 * No value needs more than eight times its JSON: two characters are a list in a list, with two
 * heads, or a number in a list and its comma, with two heads of two bytes and eight bytes.
 */
size_t rls_struct_max(const json_t *object)
{
    return 8 * json_dumpb(object, NULL, 0, JSON_COMPACT);
}

/* The largest depth in the rules' files. */
static void write_value(struct wire_writer *writer, const json_t *value)
{
    enum { NO_VALUE = 1, NUMBER, STRING, BOOL, STRUCT, LIST, ELEMENT = 1 };
    const uint8_t *end = writer->at;
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        rls_struct_write(writer, value);
        wire_write_head(writer, STRUCT, end);
        break;
    case JSON_ARRAY:
        for (size_t i = json_array_size(value); i-- > 0;) {
            const uint8_t *element_end = writer->at;
            write_value(writer, json_array_get(value, i));
            wire_write_head(writer, ELEMENT, element_end);
        }
        wire_write_head(writer, LIST, end);
        break;
    case JSON_STRING:
        wire_write_raw(writer, span_of(json_string_value(value), json_string_length(value)));
        wire_write_head(writer, STRING, end);
        break;
    case JSON_INTEGER:
    case JSON_REAL:
        wire_write_double(writer, NUMBER, json_number_value(value));
        break;
    default:
        wire_write_raw(writer, span_of(json_is_true(value) ? "\1" : "", 1));
        wire_write_tag(writer, json_is_boolean(value) ? BOOL : NO_VALUE, WIRE_VARINT);
    }
}

void rls_struct_write(struct wire_writer *writer, const json_t *object)
{
    enum { KEY = 1, VALUE, FIELDS = 1 };
    for (void *at = json_object_iter((json_t *)(uintptr_t)object); at != NULL;
         at = json_object_iter_next((json_t *)(uintptr_t)object, at)) {
        const uint8_t *end = writer->at;
        write_value(writer, json_object_iter_value(at));
        wire_write_head(writer, VALUE, end);
        wire_write_bytes(writer, KEY,
                         span_of(json_object_iter_key(at), json_object_iter_key_len(at)));
        wire_write_head(writer, FIELDS, end);
    }
}
