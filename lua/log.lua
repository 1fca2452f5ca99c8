-- SPDX-License-Identifier: MIT
-- The algorithm of src/algorithm/log.c, without bookings. A limit of at most 8,189 keeps a state
-- within 64 KiB.
--
-- State, '>BI7I4': 0x31, the latest time at which units were taken, units recorded. Then '>I7B' for
-- each time, oldest first: the time, the units less one; more than 256 of one time take several.
-- 0x32 is the same, followed by '>I4': units that charges have displaced, if there are any. They
-- count until the oldest time expires.
local function log(state, verb, cost, now, at, limit, period)
    if limit > 8189 then return nil, 'limit: expected at most 8189 for log' end
    local own, units, n, displaced = 0, 0, 0, 0
    if state then
        local version
        version, own, units = unpack('>BI7I4', state)
        if version ~= 49 and version ~= 50 then return nil, 'the key holds no state of log' end
        if version == 50 then
            displaced = unpack('>I4', state, #state - 3)
            state = state:sub(1, -5)
        end
        n = (#state - 12) / 8
    end
    local time = now > own and now or own
    local function entry(i)
        local instant, less_one = unpack('>I7B', state, 8 * i + 5)
        return instant, less_one + 1
    end
    local function expires_at()
        if n == 0 then return own end
        local instant = entry(n)
        return instant + period
    end
    -- Expired units are visited once more, when the next take removes them.
    local expired, expired_units = 0, 0
    if n > 0 and expires_at() <= time then
        expired, expired_units = n, units
    else
        while expired < n do
            local instant, some = entry(expired + 1)
            if instant + period > time then break end
            expired, expired_units = expired + 1, expired_units + some
        end
    end
    if expired > 0 then displaced = 0 end
    local vacant = limit - (units - expired_units)
    local free = vacant > displaced and vacant - displaced or 0
    local function packed(times)
        return pack('>BI7I4', displaced > 0 and 50 or 49, own, units) .. times
            .. (displaced > 0 and pack('>I4', displaced) or '')
    end
    local function reset_after(expiry)
        return expiry > now and expiry - now or 0
    end

    if verb == 'refund' then
        -- Exact entries by their time; without a time, the newest.
        local left, i = cost, n
        if at >= 0 and (at > time or at + period <= time) then i = 0 end
        local oldest = n > 0 and entry(1) or 0
        local function give_displaced(instant) -- those of the oldest time and before
            if displaced == 0 or instant > oldest then return end
            local back = left < displaced and left or displaced
            displaced, left = displaced - back, left - back
        end
        if at >= 0 and i > 0 then give_displaced(at) end
        while i > expired and left > 0 do
            local instant, some = entry(i)
            if at >= 0 and instant < at then break end
            if at < 0 then give_displaced(instant) end
            if left > 0 and (at < 0 or instant == at) then
                local taken = some < left and some or left
                local kept = taken < some and pack('>I7B', instant, some - taken - 1) or ''
                state = state:sub(1, 8 * i + 4) .. kept .. state:sub(8 * i + 13)
                left, units = left - taken, units - taken
                if taken == some then n = n - 1 end
            end
            i = i - 1
        end
        local granted, after = cost - left, nil
        if granted > 0 then
            after = packed(state:sub(13))
            vacant = limit - (units - expired_units)
            free = vacant > displaced and vacant - displaced or 0
        end
        return 0, granted, limit, free, 0, reset_after(expires_at()), after, expires_at()
    elseif verb == 'book' or verb == 'unbook' then
        return 2, 0, limit, 0, -1, 0
    end

    local whole = verb == 'take' or verb == 'peek'
    local granted = cost
    if verb == 'charge' then
        -- What does not fit displaces the oldest: they are dropped with the expired ones.
        if cost > limit then granted = limit end
        local over = granted > vacant and granted - vacant or 0
        displaced = displaced + cost - granted + over
        if displaced > 4294967295 then displaced = 4294967295 end
        while over > 0 do
            local instant, some = entry(expired + 1)
            if some > over then
                state = state:sub(1, 8 * expired + 12) .. pack('>I7B', instant, some - over - 1)
                    .. state:sub(8 * expired + 21)
                units, over = units - over, 0
            else
                expired, expired_units, over = expired + 1, expired_units + some, over - some
            end
        end
    elseif cost > free then granted = whole and 0 or free end
    if granted == 0 then
        local outcome, retry = 0, 0
        if cost > 0 then
            outcome, retry = 1, 0
            if whole and cost > limit then
                outcome, retry = 2, -1
            else
                -- All units less those that may stay must expire.
                local needed, i = units - (limit - (whole and cost or 1)), 0
                repeat
                    i = i + 1
                    local instant, some = entry(i)
                    needed, retry = needed - some, instant + period - now
                until needed <= 0
            end
        end
        return outcome, 0, limit, free, retry, reset_after(expires_at())
    end
    local expiry = time + period
    if verb == 'peek' then return 0, granted, limit, free - granted, 0, expiry - now end
    local parts, left = {n > expired and state:sub(8 * expired + 13) or ''}, granted
    if n > expired then
        local instant, some = entry(n)
        if instant == time and some < 256 then
            local added = 256 - some < left and 256 - some or left
            parts[1] = parts[1]:sub(1, -2) .. string.char(some + added - 1)
            left = left - added
        end
    end
    while left > 0 do
        local added = left < 256 and left or 256
        parts[#parts + 1] = pack('>I7B', time, added - 1)
        left = left - added
    end
    own, units = time, units - expired_units + granted
    vacant = limit - units
    free = vacant > displaced and vacant - displaced or 0
    return 0, granted, limit, free, 0, expiry - now, packed(table.concat(parts)), expiry
end
