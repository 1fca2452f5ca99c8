/* SPDX-License-Identifier: MIT */
/* The content is protobuf: repeated {url = 1, message = 2} as field 1. */
#include "xds/last_good.h"

#include "base/siphash.h"
#include "proto/grpc/wire.h"

enum { CONTENT_ENTRY = 1 };
enum { ENTRY_URL = 1, ENTRY_MESSAGE };

size_t last_good_size(const struct last_good *all, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += 3 * WIRE_HEAD_MAX + all[i].url.len + all[i].message.len;
    return size;
}

struct span last_good_write(const struct last_good *all, size_t n, uint8_t *bytes, size_t size)
{
    struct wire_writer writer = {bytes + size};
    for (size_t i = n; i-- > 0;) {
        const uint8_t *end = writer.at;
        wire_write_bytes(&writer, ENTRY_MESSAGE, all[i].message);
        wire_write_bytes(&writer, ENTRY_URL, all[i].url);
        wire_write_head(&writer, CONTENT_ENTRY, end);
    }
    return span_of(writer.at, (size_t)(bytes + size - writer.at));
}

static int read_entry(struct span entry, struct last_good *read)
{
    static const struct wire_message message = {2, {0, WIRE_BYTES, WIRE_BYTES}};
    struct wire_value value;
    int number;
    *read = (struct last_good){.url = {NULL, 0}};
    while ((number = wire_read(&message, &entry, &value)) > 0)
        *(number == ENTRY_URL ? &read->url : &read->message) = value.bytes;
    return number;
}

int last_good_read(struct span content, struct last_good all[XDS_SOURCES_MAX], size_t *n,
                   struct stint_error *error)
{
    static const struct wire_message message = {1, {0, WIRE_BYTES}};
    struct wire_value value;
    int number;
    *n = 0;
    while ((number = wire_read(&message, &content, &value)) > 0 && *n < XDS_SOURCES_MAX) {
        number = read_entry(value.bytes, &all[*n]);
        if (number < 0)
            break;
        ++*n;
    }
    return number >= 0 ? 0 : err_set(error, STINT_E_SYNTAX, "malformed content");
}

/* ---- Heads ----------------------------------------------------------------------------------- */

/* Magic, version, sequence, length, and the hash of these and the content. Little-endian. */
static const uint8_t magic[16] = "stint xds rules";
#define VERSION 1
enum { AT_VERSION = 16, AT_SEQUENCE = 24, AT_LEN = 32, AT_HASH = 40 };

static void write_u64(uint8_t *at, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)(number >> 8 * i);
}

static uint64_t read_u64(const uint8_t *at)
{
    uint64_t number = 0;
    for (int i = 7; i >= 0; i--)
        number = number << 8 | at[i];
    return number;
}

/* Against damage, not against forgery: a process that can write the file can write its hash. */
static struct hash128 hash_of(const uint8_t bytes[LAST_GOOD_HEAD], struct span content)
{
    static const uint64_t none[2] = {0, 0};
    struct hash128 head = siphash13_128(none, 0, bytes, AT_HASH);
    const uint64_t secret[2] = {head.lo, head.hi};
    return siphash13_128(secret, 0, content.ptr, content.len);
}

void last_good_write_head(uint8_t bytes[LAST_GOOD_HEAD], uint64_t sequence, struct span content)
{
    memset(bytes, 0, LAST_GOOD_HEAD);
    memcpy(bytes, magic, sizeof(magic));
    write_u64(bytes + AT_VERSION, VERSION);
    write_u64(bytes + AT_SEQUENCE, sequence);
    write_u64(bytes + AT_LEN, content.len);
    struct hash128 hash = hash_of(bytes, content);
    write_u64(bytes + AT_HASH, hash.lo);
    write_u64(bytes + AT_HASH + 8, hash.hi);
}

bool last_good_read_head(const uint8_t bytes[LAST_GOOD_HEAD], struct last_good_head *head)
{
    head->sequence = read_u64(bytes + AT_SEQUENCE);
    head->len = read_u64(bytes + AT_LEN);
    return memcmp(bytes, magic, sizeof(magic)) == 0 && read_u64(bytes + AT_VERSION) == VERSION &&
           head->sequence > 0 && head->len <= LAST_GOOD_SLOT - LAST_GOOD_HEAD;
}

bool last_good_is_whole(const uint8_t bytes[LAST_GOOD_HEAD], struct span content)
{
    struct hash128 hash = hash_of(bytes, content);
    return read_u64(bytes + AT_LEN) == content.len && read_u64(bytes + AT_HASH) == hash.lo &&
           read_u64(bytes + AT_HASH + 8) == hash.hi;
}
