-- SPDX-License-Identifier: MIT
-- Words are converted to numbers by arithmetic: tonumber() reads each of them twice. A word that is
-- no number raises an error by itself.
local verb, cost, now, limit, period, x, y, z
local at = 0
if ARGV[6] then
    verb, cost, now, limit, period = ARGV[1], ARGV[2] + 0, ARGV[3], ARGV[5] + 0, ARGV[6] + 0
    x, y, z = ARGV[7], ARGV[8], ARGV[9]
else
    verb, cost, limit, period = 'take', ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0
    x, now = ARGV[4], ARGV[5] or '0'
end
x, y, z = x and x + 0 or 0, y and y + 0 or 0, z and z + 0 or 0
local virtual = now ~= '0'
if virtual then
    now = now + 0
elseif instant then
    now = instant
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local known = verb == 'take' or verb == 'take_upto' or verb == 'peek' or verb == 'charge'
if not known then
    at = ARGV[4] + 0
    known = verb == 'refund' or verb == 'reset' or verb == 'book' or verb == 'unbook'
        or ('ALGORITHM' == 'concurrency' and (verb == 'release' or verb == 'renew'))
end
if not (known and #KEYS == 1
        and cost >= 0 and cost <= 4294967295 and cost % 1 == 0
        and limit >= 0 and limit <= 4294967295 and limit % 1 == 0
        and period >= 1 and period <= 315360000000000 and period % 1 == 0
        and now >= 0 and now <= 8000000000000000 and now % 1 == 0
        and at >= -1 and at <= 9007199254740991 and at % 1 == 0) then
    return redis.error_reply('STINT expected one key, and: verb cost now at limit period [x y z], '
        .. 'or of a take: cost limit period [x [now]]; cost and limit to 2^32-1, times in us, a '
        .. 'period of 1 us to 10 years')
end
if verb == 'reset' then
    if 'ALGORITHM' == 'gcra' and x > 0 then limit = x end
    call('DEL', KEYS[1])
    return {0, 0, limit, limit, 0, 0, 0, now}
end
if limit == 0 then -- nothing fits, and nothing ever comes back
    local closed = cost > 0 and verb ~= 'refund' and verb ~= 'unbook'
    return {closed and 2 or 0, 0, 0, 0, closed and -1 or 0, 0, 0, now}
end
local outcome, granted, capacity, remaining, retry, reset, after, expiry, stays, holder, holder_sub =
    ALGORITHM(state == nil and call('GET', KEYS[1]) or state, verb, cost, now, at, limit, period, x, y, z)
if not outcome then
    return redis.error_reply('STINT ' .. granted)
end
if after then
    if virtual then
        call('SET', KEYS[1], after)
    elseif stays then -- it expires when it did before
        call('SET', KEYS[1], after, 'KEEPTTL')
    elseif expiry <= now then -- as if never used
        call('DEL', KEYS[1])
    else
        -- Redis would print the number as a fraction, which takes longer.
        call('SET', KEYS[1], after, 'PXAT', string.format('%d', (expiry + -expiry % 1000) / 1000))
    end
end
return {outcome, granted, capacity, remaining, retry, reset, 0, now, holder, holder_sub}
