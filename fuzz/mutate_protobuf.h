/* SPDX-License-Identifier: MIT */
/*
 * Changes a message of protobuf so that it stays one: fields at any depth are left out, doubled,
 * moved and changed inside, and the lengths around them are made right again. Half of the changes
 * are libFuzzer's own, which know nothing of fields: what is malformed is to be tried, too.
 *
 * A fuzzer of messages has MUTATES_PROTOBUF(bytes in front of the message).
 */
#ifndef STINT_FUZZ_MUTATE_PROTOBUF_H
#define STINT_FUZZ_MUTATE_PROTOBUF_H

#include "bytes.h"

#include "base/splitmix.h"
#include "proto/grpc/wire.h"

#include <stdbool.h>

#define MUTATE_FIELDS_MAX 256
#define MUTATE_DEPTH_MAX 8
#define MUTATE_GROWTH 16 /* bytes by which a field may grow at once */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
/* Of libFuzzer; no other driver mutates by it. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

#define MUTATES_PROTOBUF(head)                                                                     \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)     \
    {                                                                                              \
        return mutate_protobuf(head, data, size, max_size, seed);                                  \
    }

/* Bytes that grow up to a fixed size; what does not fit is left out. */
struct mutate_out {
    uint8_t *bytes;
    size_t len, size;
};

static inline void mutate_put(struct mutate_out *out, struct span bytes)
{
    size_t len = bytes.len < out->size - out->len ? bytes.len : out->size - out->len;
    if (len > 0)
        memcpy(out->bytes + out->len, bytes.ptr, len);
    out->len += len;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static inline size_t mutate_varint(struct span bytes, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < bytes.len && i < WIRE_VARINT_MAX; i++) {
        *number |= (uint64_t)(bytes.ptr[i] & 127) << 7 * i;
        if (bytes.ptr[i] < 128)
            return i + 1;
    }
    return 0;
}

/* Where the content of a field begins, and its length; 0: these bytes are no field. */
static inline size_t mutate_field(struct span bytes, size_t *len)
{
    uint64_t key, number;
    size_t at = mutate_varint(bytes, &key), more;
    if (at == 0)
        return 0;
    switch (key & 7) {
    case WIRE_VARINT:
        *len = mutate_varint(span_after(bytes, at), &number);
        return *len > 0 ? at : 0;
    case WIRE_64BIT:
    case WIRE_32BIT:
        *len = (key & 7) == WIRE_64BIT ? 8 : 4;
        return *len <= bytes.len - at ? at : 0;
    case WIRE_BYTES:
        more = mutate_varint(span_after(bytes, at), &number);
        if (more == 0 || number > bytes.len - at - more)
            return 0;
        *len = (size_t)number;
        return at + more;
    default:
        return 0;
    }
}

static inline size_t mutate_field_cut(struct span bytes)
{
    size_t len, at = mutate_field(bytes, &len);
    return at > 0 ? at + len : bytes.len;
}

static inline bool mutate_is_message(struct span bytes)
{
    static const struct wire_message unknown = {.n_known = 0};
    struct wire_value value;
    return wire_read(&unknown, &bytes, &value) == 0;
}

static inline struct span mutate_field_inside(struct span piece, bool *nests)
{
    size_t len, at = mutate_field(piece, &len);
    struct span inside = span_of(piece.ptr + at, at > 0 ? len : piece.len);
    *nests = at > 0 && (piece.ptr[0] & 7) == WIRE_BYTES && mutate_is_message(inside);
    return inside;
}

static inline void mutate_field_wrap(struct mutate_out *out, struct span piece, struct span inside)
{
    uint64_t key = 0, number, left = inside.len;
    size_t len, at = mutate_field(piece, &len) > 0 ? mutate_varint(piece, &key) : 0;
    mutate_put(out, span_of(piece.ptr, at));
    if (at > 0 && (key & 7) == WIRE_BYTES) {
        for (; left > 127; left >>= 7)
            mutate_put(out, span_of(&(uint8_t){(uint8_t)(left | 128)}, 1));
        mutate_put(out, span_of(&(uint8_t){(uint8_t)left}, 1));
    } else if (at > 0 && (key & 7) == WIRE_VARINT && mutate_varint(inside, &number) != inside.len) {
        inside = span_of("\x7f", 1); /* a number has an end */
    }
    mutate_put(out, inside);
}

/* ---- Changes --------------------------------------------------------------------------------- */

static inline size_t mutate_below(uint64_t *chance, size_t n)
{
    return (size_t)(splitmix_next(chance) % n);
}

static inline void mutate_fields(struct mutate_out *out, struct span bytes, unsigned depth,
                                 uint64_t *chance);

/* A field with something else inside. */
static inline void mutate_inside(struct mutate_out *out, struct span piece, unsigned depth,
                                 uint64_t *chance)
{
    bool nests = false;
    struct span inside = mutate_field_inside(piece, &nests);
    struct mutate_out changed = {.size = out->size + inside.len + MUTATE_GROWTH};
    changed.bytes = malloc(changed.size);
    MUST(changed.bytes != NULL);
    if (nests && inside.len > 0 && depth < MUTATE_DEPTH_MAX) {
        mutate_fields(&changed, inside, depth + 1, chance);
    } else {
        mutate_put(&changed, inside);
        changed.len = LLVMFuzzerMutate(changed.bytes, inside.len, inside.len + MUTATE_GROWTH);
    }
    mutate_field_wrap(out, piece, span_of(changed.bytes, changed.len));
    free(changed.bytes);
}

/* Puts the fields of a message with one of them changed, left out, doubled or moved. */
static inline void mutate_fields(struct mutate_out *out, struct span bytes, unsigned depth,
                                 uint64_t *chance)
{
    struct span fields[MUTATE_FIELDS_MAX];
    size_t n = 0;
    for (; n < MUTATE_FIELDS_MAX && bytes.len > 0; n++) {
        size_t len = n + 1 < MUTATE_FIELDS_MAX ? mutate_field_cut(bytes) : bytes.len;
        fields[n] = span_of(bytes.ptr, len);
        bytes = span_after(bytes, len);
    }
    if (n == 0)
        return;
    size_t which = mutate_below(chance, n), where = mutate_below(chance, n);
    size_t how = mutate_below(chance, 8);
    for (size_t i = 0; i < n; i++) {
        if (i == where && how < 2) /* moved to here, or doubled */
            mutate_put(out, fields[which]);
        if (i == which && how > 2)
            mutate_inside(out, fields[i], depth, chance);
        else if (i != which || how == 0)
            mutate_put(out, fields[i]);
    }
}

static inline size_t mutate_protobuf(size_t head, uint8_t *data, size_t size, size_t max_size,
                                     unsigned seed)
{
    uint64_t chance = seed;
    if (size <= head || mutate_below(&chance, 2) == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    struct mutate_out out = {.bytes = malloc(max_size), .size = max_size};
    MUST(out.bytes != NULL);
    for (size_t left = 1 + mutate_below(&chance, 4); left > 0 && size > head; left--) {
        out.len = 0;
        mutate_put(&out, span_of(data, head));
        mutate_fields(&out, span_of(data + head, size - head), 0, &chance);
        size = out.len;
        memcpy(data, out.bytes, size);
    }
    free(out.bytes);
    return size > 0 ? size : LLVMFuzzerMutate(data, 0, max_size);
}

#endif
