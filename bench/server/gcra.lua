-- SPDX-License-Identifier: MIT
-- The baseline: GCRA as people run it on a Redis of their own. KEYS[1]; ARGV: burst, count, period.
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local interval = math.ceil(ARGV[3] * 1000000 / ARGV[2])
local tolerance = interval * ARGV[1]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local new_tat = tat + interval
local wait = new_tat - tolerance - now
if wait > 0 then
    return {1, tonumber(ARGV[1]), 0, wait, tat - now}
end
redis.call('SET', KEYS[1], string.format('%d', new_tat), 'PX', math.ceil((new_tat - now) / 1000))
return {0, tonumber(ARGV[1]), math.floor((tolerance - (new_tat - now)) / interval), -1, new_tat - now}
