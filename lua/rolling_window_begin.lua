-- SPDX-License-Identifier: MIT
-- A rolling window for redis-cli. KEYS[1]: the namespace; ARGV: credit tokens window bucket_window
-- best_effort [now]. docs/store-scripts.md.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
