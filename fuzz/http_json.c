/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as JSON, by our reader and by jansson: both take them, with the same values, or both
 * refuse them. Where they differ on purpose, the two …_may_refuse() say so.
 */
#include "bytes.h"

#include "proto/http/http_json.h"

#include <jansson.h>

static struct http_json json;

/* Ours takes it; why jansson may not. */
static bool jansson_may_refuse(const json_error_t *error)
{
    enum json_error_code code = json_error_code(error);
    return code == json_error_duplicate_key || code == json_error_null_byte_in_key ||
           code == json_error_null_character || code == json_error_numeric_overflow;
}

/* Jansson takes it; why ours may not: what is no object, too deep, or more than there are nodes. */
static bool we_may_refuse(const json_t *value, const struct stint_error *error)
{
    return !json_is_object(value) || strstr(error->message, "more than 16 levels") != NULL ||
           strstr(error->message, "more values than a request has") != NULL;
}

static const struct http_json_node *compare(const struct http_json_node *node, const json_t *value);

static void compare_members(const struct http_json_node *object, const json_t *value)
{
    const struct http_json_node *node = http_json_first(object);
    MUST(json_is_object(value) && json_object_size(value) == object->count);
    for (uint32_t left = object->count; left > 0; left--) {
        MUST(node->kind == HTTP_JSON_STRING);
        json_t *member = json_object_getn(value, (const char *)node->text, node->count);
        MUST(member != NULL);
        node = compare(http_json_after(node), member);
    }
    MUST(node == http_json_after(object));
}

static void compare_elements(const struct http_json_node *array, const json_t *value)
{
    const struct http_json_node *node = http_json_first(array);
    MUST(json_is_array(value) && json_array_size(value) == array->count);
    for (uint32_t i = 0; i < array->count; i++)
        node = compare(node, json_array_get(value, i));
    MUST(node == http_json_after(array));
}

/* Returns the node behind. */
static const struct http_json_node *compare(const struct http_json_node *node, const json_t *value)
{
    switch (node->kind) {
    case HTTP_JSON_OBJECT:
        compare_members(node, value);
        break;
    case HTTP_JSON_ARRAY:
        compare_elements(node, value);
        break;
    case HTTP_JSON_STRING:
        MUST(json_is_string(value) && json_string_length(value) == node->count);
        MUST(node->count == 0 || memcmp(json_string_value(value), node->text, node->count) == 0);
        break;
    case HTTP_JSON_INTEGER:
        MUST(json_is_number(value)); /* 1.0 and 1e0 are the integer 1 here */
        MUST(!json_is_integer(value) || json_integer_value(value) == node->integer);
        MUST(!json_is_real(value) || json_real_value(value) == (double)node->integer);
        break;
    case HTTP_JSON_REAL:
        MUST(json_is_real(value));
        break;
    case HTTP_JSON_TRUE:
        MUST(json_is_true(value));
        break;
    case HTTP_JSON_FALSE:
        MUST(json_is_false(value));
        break;
    default:
        MUST(node->kind == HTTP_JSON_NULL && json_is_null(value));
    }
    return http_json_after(node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = bytes_copy(span_of(data, size));
    struct stint_error error = {0};
    json_error_t fault;
    int code = http_json_parse(&json, span_of(copy, size), &error);
    json_t *value =
        json_loadb((const char *)copy, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    MUST(code == 0 || (code == STINT_E_SYNTAX && strncmp(error.message, "JSON, line ", 11) == 0));
    if (code == 0 && value != NULL)
        MUST(compare(json.nodes, value) == json.nodes + json.n_nodes);
    else if (code == 0)
        MUST(jansson_may_refuse(&fault));
    else if (value != NULL &&
             memchr(copy, '\0', size) == NULL) /* jansson skips one behind a number */
        MUST(we_may_refuse(value, &error));
    json_decref(value);
    http_json_deinit(&json);
    free(copy);
    return 0;
}
