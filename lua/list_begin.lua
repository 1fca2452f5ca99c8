-- SPDX-License-Identifier: MIT
-- Several quotas, all or nothing. KEYS; ARGV: verb now at, then for each key: algorithm cost limit
-- period x y z. docs/store-scripts.md.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local holders -- by key: places to be given back in place of units
