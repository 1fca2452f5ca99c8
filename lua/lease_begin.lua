-- SPDX-License-Identifier: MIT
-- One quota with leased units. KEYS: the state, the leases. ARGV: verb cost now at limit
-- period [x y z [term {end units left}…]]. docs/store-scripts.md.
--
-- Leases, '>B': 0x81. Then '>I7I4' for each, in the order of their ends: its end, its units. At
-- most 64 leases, 705 bytes.
local call, pack, unpack = redis.call, struct.pack, struct.unpack
