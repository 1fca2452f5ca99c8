/* SPDX-License-Identifier: MIT */
/* The keys of every mapping in a file of rules. */
#include "rules/yaml/schema.h"

#define KEYS(names) .keys = (names), .n_keys = sizeof(names) / sizeof((names)[0])

static const char *const file_keys[] = {
    [FILE_DOMAIN] = "domain",
    [FILE_STORE_TAG] = "store_tag",
    [FILE_DESCRIPTORS] = "descriptors",
};

static const char *const entry_keys[] = {
    [ENTRY_KEY] = "key",
    [ENTRY_VALUE] = "value",
    [ENTRY_RATE_LIMIT] = "rate_limit",
    [ENTRY_SHADOW] = "shadow",
    [ENTRY_BAN] = "ban",
    [ENTRY_DESCRIPTORS] = "descriptors",
    [ENTRY_METADATA] = "metadata",
    [ENTRY_SHADOW_MODE] = "shadow_mode",
    [ENTRY_QUOTA_MODE] = "quota_mode",
    [ENTRY_DETAILED_METRIC] = "detailed_metric",
    [ENTRY_VALUE_TO_METRIC] = "value_to_metric",
    [ENTRY_SHARE_THRESHOLD] = "share_threshold",
};

static const char *const limit_keys[] = {
    [LIMIT_REQUESTS_PER_UNIT] = "requests_per_unit",
    [LIMIT_UNIT] = "unit",
    [LIMIT_PERIOD] = "period",
    [LIMIT_ALGORITHM] = "algorithm",
    [LIMIT_CALENDAR] = "calendar",
    [LIMIT_UTC_OFFSET] = "utc_offset",
    [LIMIT_BURST] = "burst",
    [LIMIT_RESOLUTION] = "resolution",
    [LIMIT_TIME_SLACK] = "time_slack",
    [LIMIT_COUNT_SLACK] = "count_slack",
    [LIMIT_LEASE] = "lease",
    [LIMIT_COUNT_DENIED] = "count_denied",
    [LIMIT_WHEN_FULL] = "when_full",
    [LIMIT_NAME] = "name",
    [LIMIT_REPLACES] = "replaces",
    [LIMIT_UNLIMITED] = "unlimited",
    [LIMIT_ON_STORE_ERROR] = "on_store_error",
    [LIMIT_STORE] = "store",
    [LIMIT_LEASE_UNITS] = "lease_units",
    [LIMIT_LEASE_TERM] = "lease_term",
    [LIMIT_LOCAL_START] = "local_start",
    [LIMIT_LOCAL_FOR] = "local_for",
    [LIMIT_LOCAL_THEN] = "local_then",
    [LIMIT_HITS] = "hits",
    [LIMIT_ON_EXPIRY] = "on_expiry",
};

static const char *const ban_keys[] = {
    [BAN_AFTER] = "after",   [BAN_FOR] = "for", [BAN_WITHIN] = "within",
    [BAN_FACTOR] = "factor", [BAN_MAX] = "max",
};

static const char *const replaces_keys[] = {[REPLACES_NAME] = "name"};

const struct shape shape_file = {"the file", "a file", KEYS(file_keys)};
const struct shape shape_entry = {"an entry", "an entry with a key", KEYS(entry_keys)};
const struct shape shape_limit = {"rate_limit", "a rate_limit with its keys", KEYS(limit_keys)};
const struct shape shape_shadow = {
    .name = "shadow",
    .article = "a shadow with the keys of a limit",
    .keys = limit_keys,
    .n_keys = LIMIT_NAME,
};
const struct shape shape_ban = {"ban", "a ban with its keys", KEYS(ban_keys)};
const struct shape shape_replaces = {"replaces", "{name: NAME}", KEYS(replaces_keys)};

_Static_assert(sizeof(limit_keys) / sizeof(limit_keys[0]) <= FIELDS_MAX, "fields hold every key");
