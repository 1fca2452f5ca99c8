/* SPDX-License-Identifier: MIT */
/* An address is two texts in a reply, or two of five words in a message. */
#include "backend/redis/sentinel.h"

#include "base/number.h"

static bool set_host(struct store_host *host, struct span name, struct span port)
{
    uint64_t number;
    return resp_number_read(port, UINT16_MAX, &number) && number != 0 &&
           store_host_set(host, name, (uint16_t)number);
}

int sentinel_read_master(struct store_host *master, const char *name,
                         const struct redis_reply *reply, struct stint_error *error)
{
    struct store_host host;
    if (reply->type == REDIS_NIL)
        return err_set(error, STINT_E_GONE, "the sentinel watches no master named '%s'", name);
    if (reply->type != REDIS_ARRAY || reply->n_items != 2 ||
        !set_host(&host, reply->items[0].text, reply->items[1].text))
        return err_set(error, STINT_E_SYNTAX,
                       "the sentinel's reply is not an address: expected a host and a port");
    *master = host;
    return 0;
}

/* ["message", channel, "name old-host old-port new-host new-port"] */
bool sentinel_read_switch(struct store_host *master, const char *name,
                          const struct redis_reply *message)
{
    struct store_host host;
    if (message->type != REDIS_ARRAY || message->n_items != 3 ||
        !redis_reply_is(&message->items[0], "message") ||
        !redis_reply_is(&message->items[1], SENTINEL_CHANNEL) ||
        message->items[2].type != REDIS_TEXT)
        return false;
    struct span rest = message->items[2].text;
    if (!span_equals(span_cut_word(&rest), name))
        return false;
    span_cut_word(&rest);
    span_cut_word(&rest);
    struct span new_name = span_cut_word(&rest), new_port = span_cut_word(&rest);
    if (rest.len > 0 || !set_host(&host, new_name, new_port))
        return false;
    *master = host;
    return true;
}
