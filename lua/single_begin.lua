-- SPDX-License-Identifier: MIT
-- One quota. KEYS[1]; ARGV: verb cost now at limit period [x y z]. docs/store-scripts.md.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
