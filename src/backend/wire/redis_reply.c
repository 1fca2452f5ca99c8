/* SPDX-License-Identifier: MIT */
/*
 * hiredis requests an object for each part of a reply; they are allocated in chunks that are
 * emptied at the next reply. Small replies fit the first chunk, which stays.
 */
#include "backend/wire/redis_reply.h"

#include "base/number.h"

#include <hiredis/read.h>
#include <stdalign.h>
#include <stdlib.h>

#define PIECE_SIZE 4096
#define SLOTS_MAX 16384

struct piece {
    struct piece *next;
    size_t size, len;
    alignas(16) uint8_t bytes[];
};

struct redis_reader {
    redisReader *reader;
    struct piece *first, *last;
    struct redis_reply root;
    size_t bytes_max, bytes_used; /* of all pieces */
    bool is_too_large;
};

/* ---- Memory of one reply --------------------------------------------------------------------- */

static struct piece *piece_new(size_t size)
{
    struct piece *piece = malloc(sizeof(*piece) + size);
    if (piece != NULL)
        *piece = (struct piece){.size = size};
    return piece;
}

static void *take(struct redis_reader *reader, size_t len)
{
    struct piece *piece = reader->last;
    len = (len + 15) / 16 * 16;
    if (len > reader->bytes_max - reader->bytes_used) {
        reader->is_too_large = true;
        return NULL;
    }
    if (len > piece->size - piece->len) {
        piece->next = piece_new(len > PIECE_SIZE ? len : PIECE_SIZE);
        if (piece->next == NULL)
            return NULL;
        piece = reader->last = piece->next;
    }
    void *taken = piece->bytes + piece->len;
    piece->len += len;
    reader->bytes_used += len;
    return taken;
}

static void forget(struct redis_reader *reader)
{
    for (struct piece *piece = reader->first->next, *next; piece != NULL; piece = next) {
        next = piece->next;
        free(piece);
    }
    reader->first->next = NULL;
    reader->first->len = 0;
    reader->last = reader->first;
    reader->bytes_used = 0;
}

/* ---- Callbacks of hiredis -------------------------------------------------------------------- */

/* The position of an object in the array around it. */
static struct redis_reply *place_of(const redisReadTask *task)
{
    struct redis_reader *reader = task->privdata;
    if (task->parent == NULL)
        return &reader->root;
    struct redis_reply *around = task->parent->obj;
    return (struct redis_reply *)(uintptr_t)&around->items[task->idx];
}

static void *create_text(const redisReadTask *task, char *text, size_t len)
{
    struct redis_reply *reply = place_of(task);
    uint8_t *copy = take(task->privdata, len > 0 ? len : 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, len);
    *reply = (struct redis_reply){.type = task->type == REDIS_REPLY_ERROR    ? REDIS_ERROR
                                          : task->type == REDIS_REPLY_STATUS ? REDIS_STATUS
                                                                             : REDIS_TEXT,
                                  .text = span_of(copy, len)};
    return reply;
}

static void *create_array(const redisReadTask *task, int n_items)
{
    struct redis_reply *reply = place_of(task);
    struct redis_reply *items = NULL;
    if (n_items > 0 && (items = take(task->privdata, (size_t)n_items * sizeof(*items))) == NULL)
        return NULL;
    for (int i = 0; i < n_items; i++)
        items[i] = (struct redis_reply){.type = REDIS_NIL};
    *reply = (struct redis_reply){.type = REDIS_ARRAY, .items = items, .n_items = (size_t)n_items};
    return reply;
}

static void *create_integer(const redisReadTask *task, long long number)
{
    struct redis_reply *reply = place_of(task);
    *reply = (struct redis_reply){.type = REDIS_INTEGER, .number = number};
    return reply;
}

static void *create_nil(const redisReadTask *task)
{
    struct redis_reply *reply = place_of(task);
    *reply = (struct redis_reply){.type = REDIS_NIL};
    return reply;
}

static redisReplyObjectFunctions functions = {
    .createString = create_text,
    .createArray = create_array,
    .createInteger = create_integer,
    .createNil = create_nil,
    .freeObject = NULL, /* all at once, at the next reply */
};

/* ---- The reader ------------------------------------------------------------------------------ */

struct redis_reader *redis_reader_new(size_t bytes_max)
{
    struct redis_reader *reader = calloc(1, sizeof(*reader));
    if (reader == NULL)
        return NULL;
    reader->bytes_max = bytes_max;
    reader->first = reader->last = piece_new(PIECE_SIZE);
    reader->reader = redisReaderCreateWithFunctions(&functions);
    if (reader->first == NULL || reader->reader == NULL) {
        redis_reader_free(reader);
        return NULL;
    }
    reader->reader->privdata = reader;
    return reader;
}

void redis_reader_free(struct redis_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->first != NULL)
        forget(reader);
    if (reader->reader != NULL)
        redisReaderFree(reader->reader);
    free(reader->first);
    free(reader);
}

static int fault(const struct redis_reader *reader, struct stint_error *error)
{
    if (reader->is_too_large)
        return err_set(error, STINT_E_RANGE,
                       "the store's reply is too large: expected at most %zu bytes",
                       reader->bytes_max);
    if (reader->reader->err == REDIS_ERR_OOM)
        return err_set(error, STINT_E_SYSTEM, "no memory for a store's reply");
    return err_set(error, STINT_E_SYNTAX, "invalid reply from Redis or Valkey: %s",
                   reader->reader->errstr);
}

int redis_reader_feed(struct redis_reader *reader, struct span bytes, struct stint_error *error)
{
    if (bytes.len > reader->bytes_max - (reader->reader->len - reader->reader->pos))
        reader->is_too_large = true;
    if (reader->is_too_large ||
        redisReaderFeed(reader->reader, (const char *)bytes.ptr, bytes.len) != REDIS_OK)
        return fault(reader, error);
    return 0;
}

int redis_reader_next(struct redis_reader *reader, const struct redis_reply **reply,
                      struct stint_error *error)
{
    void *found = NULL;
    if (reader->is_too_large)
        return fault(reader, error);
    if (reader->reader->ridx == -1) /* no reply is incomplete */
        forget(reader);
    if (redisReaderGetReply(reader->reader, &found) != REDIS_OK)
        return fault(reader, error);
    if (found == NULL)
        return 0;
    *reply = found;
    return 1;
}

/* ---- Content of a reply ---------------------------------------------------------------------- */

static bool begins_with(struct span text, const char *word)
{
    size_t len = strlen(word);
    return text.len >= len && memcmp(text.ptr, word, len) == 0 &&
           (text.len == len || text.ptr[len] == ' ');
}

/* Before version 7 a script's error contains that of its command: "... 1: -READONLY You ..." */
static struct span innermost(struct span text)
{
    if (!begins_with(text, "ERR Error running script"))
        return text;
    for (size_t i = text.len; i >= 3; i--)
        if (memcmp(text.ptr + i - 3, ": -", 3) == 0)
            return span_of(text.ptr + i, text.len - i);
    return text;
}

enum redis_error redis_error_of(struct span text)
{
    static const struct {
        const char *word;
        enum redis_error fault;
    } known[] = {
        {"NOSCRIPT", REDIS_ERROR_NOSCRIPT},
        {"MOVED", REDIS_ERROR_MOVED},
        {"ASK", REDIS_ERROR_ASK},
        {"TRYAGAIN", REDIS_ERROR_TRYAGAIN},
        {"CROSSSLOT", REDIS_ERROR_CROSSSLOT},
        {"CLUSTERDOWN", REDIS_ERROR_CLUSTERDOWN},
        {"LOADING", REDIS_ERROR_LOADING},
        {"READONLY", REDIS_ERROR_READONLY},
        {"MASTERDOWN", REDIS_ERROR_MASTERDOWN},
        {"BUSY", REDIS_ERROR_BUSY},
        {"OOM", REDIS_ERROR_OUT_OF_MEMORY},
        {"MISCONF", REDIS_ERROR_CANNOT_WRITE},
        {"NOREPLICAS", REDIS_ERROR_CANNOT_WRITE},
        {"NOAUTH", REDIS_ERROR_DENIED},
        {"WRONGPASS", REDIS_ERROR_DENIED},
        {"NOPERM", REDIS_ERROR_DENIED},
    };
    text = innermost(text);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (begins_with(text, known[i].word))
            return known[i].fault;
    return REDIS_ERROR_OTHER;
}

bool redis_redirect_parse(struct span text, struct redis_redirect *redirect)
{
    uint64_t slot, port;
    struct span kind = span_cut_word(&text);
    if (!span_equals(kind, "MOVED") && !span_equals(kind, "ASK"))
        return false;
    if (!resp_number_read(span_cut_word(&text), SLOTS_MAX - 1, &slot))
        return false;
    struct span address = span_cut_word(&text);
    size_t colon = address.len; /* the last one: an IPv6 address has others */
    while (colon > 0 && address.ptr[colon - 1] != ':')
        colon--;
    if (colon == 0 ||
        !resp_number_read(span_of(address.ptr + colon, address.len - colon), UINT16_MAX, &port) ||
        port == 0)
        return false;
    struct span host = span_of(address.ptr, colon - 1);
    if (span_equals(host, "?")) /* a node that does not know its own name */
        host.len = 0;
    *redirect = (struct redis_redirect){(unsigned)slot, host, (uint16_t)port};
    return true;
}

bool redis_reply_is(const struct redis_reply *reply, const char *text)
{
    return (reply->type == REDIS_TEXT || reply->type == REDIS_STATUS) &&
           span_equals(reply->text, text);
}

const struct redis_reply *redis_reply_named(const struct redis_reply *reply, const char *name)
{
    for (size_t i = 0; reply->type == REDIS_ARRAY && i + 1 < reply->n_items; i += 2)
        if (redis_reply_is(&reply->items[i], name))
            return &reply->items[i + 1];
    return NULL;
}
