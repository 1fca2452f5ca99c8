-- SPDX-License-Identifier: MIT
-- The algorithm of src/algorithm/buckets.c. x: time_slack in us, 0: form B. y: count_slack, 0: A.
--
-- State, '>BI7B': 0x21, the newest bucket's first use (the state's own time without one, or if it
-- is closed), 1 if the newest bucket takes no more units. Then '>I7I4' for each bucket, oldest
-- first: its last use, its units. At most 510 buckets, 5,619 bytes. 0x22 is the same, followed by
-- '>I4': units that charges have displaced, if any. They come back with the oldest bucket.
local ceil = math.ceil

local function buckets(state, verb, cost, now, at, limit, period, time_slack, count_slack)
    local size = count_slack > 0 and count_slack or limit
    -- ceil(W/O) buckets may have timed out, the others are full: src/algorithm/buckets.c.
    local timed_out = time_slack > 0 and ceil(period / time_slack) or 0
    local alive_max = timed_out + ceil((limit > timed_out and limit - timed_out or 1) / size)
    if not (time_slack >= 0 and time_slack <= period and time_slack % 1 == 0 and count_slack >= 0
            and count_slack <= limit and count_slack % 1 == 0 and time_slack + count_slack > 0
            and (alive_max <= 510 or limit <= 510)) then
        return nil, 'time_slack, count_slack: expected one or both, and at most 510 buckets'
    end
    if alive_max > limit then alive_max = limit end
    local first, closed, n, last, count, displaced = 0, 0, 0, {}, {}, 0
    if state then
        local version
        version, first, closed = unpack('>BI7B', state)
        if version ~= 33 and version ~= 34 then return nil, 'the key holds no state of buckets' end
        n = (#state - 9) / 11
        if version == 34 then
            n = (#state - 13) / 11
            displaced = unpack('>I4', state, #state - 3)
        end
        for i = 1, n do
            last[i], count[i] = unpack('>I7I4', state, 11 * i - 1)
        end
    end
    local function latest() -- the state's own time
        return (n == 0 or closed == 1) and first or last[n]
    end
    local function expires_at()
        return n == 0 and first or last[n] + period
    end
    -- Removes buckets i to j.
    local function remove(i, j)
        for k = j + 1, n do
            last[k - j + i - 1], count[k - j + i - 1] = last[k], count[k]
        end
        n = n - (j - i + 1)
    end
    local function drop(oldest)
        if oldest == 0 then return end
        displaced = 0
        if oldest == n then first, closed = latest(), 0 end
        remove(1, oldest)
    end
    local time = latest()
    if now > time then time = now end
    -- The third result: what the live buckets leave, without the displaced units. It is below zero
    -- where the limit was lowered.
    local function expired_and_free()
        local expired, vacant = 0, limit
        while expired < n and last[expired + 1] + period <= time do expired = expired + 1 end
        for i = expired + 1, n do vacant = vacant - count[i] end
        local free = expired == 0 and vacant - displaced or vacant
        return expired, free > 0 and free or 0, vacant
    end
    local function packed()
        local parts = {pack('>BI7B', displaced > 0 and 34 or 33, first, closed)}
        for i = 1, n do parts[i + 1] = pack('>I7I4', last[i], count[i]) end
        if displaced > 0 then parts[n + 2] = pack('>I4', displaced) end
        return table.concat(parts)
    end
    local function displace(units)
        displaced = displaced + units
        if displaced > 4294967295 then displaced = 4294967295 end
    end
    -- Records units, at most N with those recorded already.
    local function record(units)
        local room = 0
        if n > 0 and closed == 0 and (time_slack == 0 or time - first < time_slack) then
            room = size - count[n]
        end
        if room > 0 then
            local added = room < units and room or units
            last[n], count[n], units = time, count[n] + added, units - added
        end
        while units > 0 do
            local added = size < units and size or units
            if n >= alive_max then -- all of the oldest bucket is displaced
                local before, oldest = displaced, count[1]
                drop(1)
                displaced = before
                displace(oldest)
            end
            n, first, closed = n + 1, time, 0
            last[n], count[n], units = time, added, units - added
        end
    end
    local function reset_after()
        local expiry = expires_at()
        return expiry > now and expiry - now or 0
    end
    local expired, free, vacant = expired_and_free()

    if verb == 'refund' then
        -- Empties whole buckets, oldest first; then a part of the newest, if it is open and the
        -- grant is one of its uses. Expired buckets stay until the next use.
        if at < 0 then at = time elseif at > now then at = now end
        local left, final = cost, expired
        local is_full = expired == 0 and displaced == 4294967295 -- saturated
        if at + period > time and not is_full then
            if expired == 0 then
                local back = left < displaced and left or displaced
                displaced, left = displaced - back, left - back
            end
            while final < n and count[final + 1] <= left do
                final = final + 1
                left = left - count[final]
            end
            local own, kept = latest(), n - final
            local partly = left > 0 and kept > 0 and closed == 0
                and (kept == 1 or at > first or at >= own)
            local function empty(i, j)
                if i == 1 then
                    drop(j)
                elseif j < n then
                    remove(i, j)
                elseif i <= j then
                    first, closed, n = latest(), 1, i - 1
                end
            end
            empty(expired + 1, final)
            if partly then
                if left < count[n] then
                    count[n], left = count[n] - left, 0
                else
                    left = left - count[n]
                    empty(n, n)
                end
            end
        end
        local after = left < cost and packed() or nil
        expired, free = expired_and_free()
        return 0, cost - left, limit, free, 0, reset_after(), after, expires_at()
    elseif verb == 'book' or verb == 'unbook' then
        return 2, 0, limit, 0, -1, 0
    end

    if verb == 'charge' and cost > 0 then
        drop(expired)
        local units = cost < limit and cost or limit
        local over = units > vacant and units - vacant or 0
        local before, oldest = displaced + cost - units + over, 0
        while oldest < n and count[oldest + 1] <= over do
            oldest = oldest + 1
            over = over - count[oldest]
        end
        if oldest < n then count[oldest + 1] = count[oldest + 1] - over end
        drop(oldest)
        displaced = 0
        displace(before)
        record(units)
        expired, free = expired_and_free()
        return 0, units, limit, free, 0, time + period - now, packed(), expires_at()
    end
    local whole = verb == 'take' or verb == 'peek'
    local granted = cost
    if cost > free then granted = whole and 0 or free end
    if granted == 0 then
        local outcome, retry = 0, 0
        if cost > 0 then
            outcome, retry = 1, 0
            if whole and cost > limit then
                outcome, retry = 2, -1
            else
                local missing, i = (whole and cost or 1) - vacant, expired + 1
                while i < n and count[i] < missing do
                    missing, i = missing - count[i], i + 1
                end
                retry = last[i] + period - now
            end
        end
        return outcome, 0, limit, free, retry, reset_after()
    end
    local reset = time + period - now
    if verb == 'peek' then return 0, granted, limit, free - granted, 0, reset end
    drop(expired)
    record(granted)
    return 0, granted, limit, free - granted, 0, reset, packed(), expires_at()
end
