-- SPDX-License-Identifier: MIT
-- Several quotas, all or nothing. KEYS; ARGV: verb now at, then for each key: algorithm cost limit
-- period x y z. docs/store-scripts.md.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local moves -- by key: the verb and units that replace the request's; nil: nothing
