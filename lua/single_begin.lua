-- SPDX-License-Identifier: MIT
-- One quota. KEYS[1]; ARGV: verb cost now at limit period [x y z]; of a take also the short form:
-- cost limit period [x [now]]. docs/store-scripts.md.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local state, instant -- what was read of the key and of the clock
