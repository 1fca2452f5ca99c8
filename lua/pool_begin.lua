-- SPDX-License-Identifier: MIT
-- A pool of keys. KEYS[1]: the hash that holds all of its states; ARGV: verb now cost at order
-- probe weights groups_of groups, for each group its number of quotas and for each of those
-- algorithm limit period x y z, then the names of the keys. docs/store-scripts.md.
local call, pack, unpack, list_of = redis.call, struct.pack, struct.unpack, unpack
