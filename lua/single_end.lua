-- SPDX-License-Identifier: MIT
local verb, cost, now, at = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local limit, period = tonumber(ARGV[5]), tonumber(ARGV[6])
local x, y, z = ARGV[7], ARGV[8], ARGV[9]
x, y, z = not x and 0 or tonumber(x), not y and 0 or tonumber(y), not z and 0 or tonumber(z)
local virtual = now ~= '0'
if virtual then
    now = tonumber(now)
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
-- Whole numbers in range. Comparisons with what is no number are false, or an error of their own.
if not (cost and now and at and limit and period and x and y and z and #KEYS == 1
        and cost >= 0 and cost <= 4294967295 and cost % 1 == 0
        and limit >= 0 and limit <= 4294967295 and limit % 1 == 0
        and period >= 1 and period <= 315360000000000 and period % 1 == 0
        and now >= 0 and now <= 8000000000000000 and now % 1 == 0
        and at >= -1 and at <= 9007199254740991 and at % 1 == 0) or not (verb == 'take'
        or verb == 'take_upto' or verb == 'peek' or verb == 'charge' or verb == 'refund'
        or verb == 'reset' or verb == 'book' or verb == 'unbook'
        or ('LAW' == 'concurrency' and (verb == 'release' or verb == 'renew'))) then
    return redis.error_reply('STINT expected one key, and a verb, cost now at limit period [x y z], '
        .. 'cost and limit to 2^32-1, times in us, a period of 1 us to 10 years')
end
if verb == 'reset' then
    call('DEL', KEYS[1])
    return {0, 0, limit, limit, 0, 0, 0, now}
end
if limit == 0 then -- room for nothing, and nothing of it can come back
    local closed = cost > 0 and verb ~= 'refund' and verb ~= 'unbook'
    return {closed and 2 or 0, 0, 0, 0, closed and -1 or 0, 0, 0, now}
end
local outcome, granted, capacity, remaining, retry, reset, after, dies, stays, holder, holder_sub =
    LAW(call('GET', KEYS[1]), verb, cost, now, at, limit, period, x, y, z)
if not outcome then
    return redis.error_reply('STINT ' .. granted)
end
if after then
    if virtual then
        call('SET', KEYS[1], after)
    elseif stays then -- it dies when it did before
        call('SET', KEYS[1], after, 'KEEPTTL')
    elseif dies <= now then -- as if never used
        call('DEL', KEYS[1])
    else
        call('SET', KEYS[1], after, 'PXAT', (dies + -dies % 1000) / 1000)
    end
end
return {outcome, granted, capacity, remaining, retry, reset, 0, now, holder, holder_sub}
