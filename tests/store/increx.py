# SPDX-License-Identifier: MIT
"""INCREX as Redis 8.8 documents it, on servers that have none: in Lua, which is as atomic."""

SCRIPT = """
local key, by, upper, px, enx = KEYS[1], ARGV[1] + 0, ARGV[2] + 0, ARGV[3], ARGV[4] == 'ENX'
local value = redis.call('GET', key)
if value and not value:find('^-?%d+$') then
    return redis.error_reply('ERR value is not an integer or out of range')
end
value = value and value + 0 or 0
if value + by > upper then return {value, 0} end
local lives_on = redis.call('PTTL', key) > 0
redis.call('INCRBY', key, by)
if px and not (enx and lives_on) then redis.call('PEXPIRE', key, px) end
return {value + by, by}
"""


def increx(client, key, by, upper, px):
    """INCREX key BYINT by UBOUND upper PX px ENX."""
    return client.eval(SCRIPT, 1, key, by, upper, px, "ENX")
