/* SPDX-License-Identifier: MIT */
/* Bytes of each type. */
#include "proto/resp/resp_writer.h"

#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>

#define SIZE_FIRST 1024
#define HEAD_MAX (1 + RESP_DIGITS_MAX + 2 + 1) /* type, digits, CR LF, a sign */
#define DOUBLE_TEXT_SIZE 512                   /* of any double with three decimals */

void resp_writer_deinit(struct resp_writer *writer)
{
    free(writer->bytes);
    *writer = (struct resp_writer){.version = writer->version};
}

uint8_t *resp_writer_grow(struct resp_writer *writer, size_t n)
{
    size_t size = writer->size > 0 ? writer->size : SIZE_FIRST;
    if (writer->failed || n > SIZE_MAX / 4 || writer->len > SIZE_MAX / 4) {
        writer->failed = true;
        return NULL;
    }
    while (size - writer->len < n)
        size *= 2;
    uint8_t *bytes = realloc(writer->bytes, size);
    if (bytes == NULL) {
        writer->failed = true;
        return NULL;
    }
    writer->bytes = bytes;
    writer->size = size;
    return bytes + writer->len;
}

static inline uint8_t *put_end(uint8_t *at)
{
    at[0] = '\r';
    at[1] = '\n';
    return at + 2;
}

static void write_head(struct resp_writer *writer, char type, uint64_t number)
{
    uint8_t *space = resp_writer_space(writer, HEAD_MAX);
    if (space == NULL)
        return;
    space[0] = (uint8_t)type;
    uint8_t *end = put_end(resp_number_write(space + 1, number));
    writer->len += (size_t)(end - space);
}

void resp_write_array(struct resp_writer *writer, size_t n)
{
    write_head(writer, '*', n);
}

void resp_write_map(struct resp_writer *writer, size_t n)
{
    if (writer->version >= 3)
        write_head(writer, '%', n);
    else
        write_head(writer, '*', 2 * n);
}

void resp_write_integer(struct resp_writer *writer, int64_t number)
{
    uint8_t *space = resp_writer_space(writer, HEAD_MAX);
    if (space == NULL)
        return;
    uint8_t *at = space;
    *at++ = ':';
    if (number < 0)
        *at++ = '-';
    at = resp_number_write(at, number < 0 ? -(uint64_t)number : (uint64_t)number);
    writer->len += (size_t)(put_end(at) - space);
}

static void write_string(struct resp_writer *writer, char type, struct span prefix,
                         struct span bytes)
{
    uint8_t *space = resp_writer_space(writer, HEAD_MAX + prefix.len + bytes.len + 2);
    if (space == NULL)
        return;
    space[0] = (uint8_t)type;
    uint8_t *at = put_end(resp_number_write(space + 1, prefix.len + bytes.len));
    memcpy(at, prefix.ptr, prefix.len);
    at += prefix.len;
    if (bytes.len > 0)
        memcpy(at, bytes.ptr, bytes.len);
    at = put_end(at + bytes.len);
    writer->len += (size_t)(at - space);
}

void resp_write_bulk(struct resp_writer *writer, struct span bytes)
{
    write_string(writer, '$', span_of("", 0), bytes);
}

void resp_write_text(struct resp_writer *writer, const char *text)
{
    resp_write_bulk(writer, span_of_text(text));
}

void resp_write_verbatim(struct resp_writer *writer, struct span text)
{
    if (writer->version >= 3)
        write_string(writer, '=', span_of("txt:", 4), text);
    else
        resp_write_bulk(writer, text);
}

void resp_write_digits(struct resp_writer *writer, uint64_t number)
{
    uint8_t digits[RESP_DIGITS_MAX];
    uint8_t *end = resp_number_write(digits, number);
    resp_write_bulk(writer, span_of(digits, (size_t)(end - digits)));
}

static void write_raw(struct resp_writer *writer, const char *type, const char *text)
{
    size_t type_len = strlen(type), len = strlen(text);
    uint8_t *space = resp_writer_space(writer, type_len + len + 2);
    if (space == NULL)
        return;
    memcpy(space, type, type_len);
    memcpy(space + type_len, text, len);
    put_end(space + type_len + len);
    writer->len += type_len + len + 2;
}

void resp_write_simple(struct resp_writer *writer, const char *text)
{
    write_raw(writer, "+", text);
}

void resp_write_null(struct resp_writer *writer)
{
    if (writer->version >= 3)
        write_raw(writer, "_", "");
    else
        write_raw(writer, "$", "-1");
}

void resp_write_double(struct resp_writer *writer, double number)
{
    char text[DOUBLE_TEXT_SIZE];
    snprintf(text, sizeof(text), "%.3f", number);
    if (writer->version >= 3)
        write_raw(writer, ",", text);
    else
        resp_write_text(writer, text);
}

void resp_write_error(struct resp_writer *writer, const char *word, const char *message)
{
    size_t word_len = strlen(word), len = strlen(message);
    uint8_t *space = resp_writer_space(writer, 1 + word_len + 1 + len + 2);
    if (space == NULL)
        return;
    uint8_t *at = space;
    *at++ = '-';
    memcpy(at, word, word_len);
    at += word_len;
    *at++ = ' ';
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)message[i];
        *at++ = c < 0x20 || c == 0x7f ? ' ' : c;
    }
    writer->len += (size_t)(put_end(at) - space);
}
