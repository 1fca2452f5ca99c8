-- SPDX-License-Identifier: MIT
local credit, tokens, window = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket_window, best_effort, now = tonumber(ARGV[4]), ARGV[5], ARGV[6] or '0'
local virtual = now ~= '0'
if virtual then
    now = tonumber(now)
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
if not (credit and tokens and window and bucket_window and now and #KEYS == 1
        and credit >= 0 and credit <= 4294967295 and credit % 1 == 0
        and tokens >= 0 and tokens <= 4294967295 and tokens % 1 == 0
        and window >= 1 and window <= 315360000000000 and window % 1 == 0
        and bucket_window >= 1 and bucket_window <= window and bucket_window % 1 == 0
        and (best_effort == '0' or best_effort == '1')
        and now >= 0 and now <= 8000000000000000 and now % 1 == 0) then
    return redis.error_reply('STINT expected one key, and: credit tokens window bucket_window '
        .. 'best_effort (0 or 1) [now], whole numbers, times in us, bucket_window at most window')
end
-- The algorithm of buckets keeps 510 of them: one for each sub-window, and the one in use.
if bucket_window * 509 < window and credit > 510 then
    return redis.error_reply(string.format('STINT bucket_window %.0f is too small for a window of '
        .. '%.0f: expected at least %.0f us, 1/509 of the window; a credit up to 510 may have any',
        bucket_window, window, math.ceil(window / 509)))
end
-- A credit of 0 never comes back: a denial without a wait, with best effort as well.
local verb = best_effort == '1' and credit > 0 and 'take_upto' or 'take'
local outcome, granted, _, remaining, retry, reset, after, expiry = buckets(call('GET', KEYS[1]),
    verb, tokens, now, -1, credit, window, bucket_window, 0)
if not outcome then
    return redis.error_reply('STINT ' .. granted)
end
if after then
    if virtual then
        call('SET', KEYS[1], after)
    else
        call('SET', KEYS[1], after, 'PXAT', math.ceil(expiry / 1000))
    end
end
return {granted, remaining, retry, reset}
