-- SPDX-License-Identifier: MIT
-- The algorithm of src/algorithm/sliding_counter.c. x: 1 charges refused takes too.
--
-- State, '>BI7I5I5': 0x61, the window's number floor(now / W), units in the window before, units in
-- this one (each up to 2N by charges, below 2^34).
local floor = math.floor

local function sliding_counter(state, verb, cost, now, at, limit, period, count_denied)
    -- floor(a * b / d) and the remainder. Where a * b exceeds 2^53 it is divided three bits of `a`
    -- at a time: b and d are at most 10 years, 3.2e14 us, and the remainder is below d, so that no
    -- sum exceeds 8 * 3.2e14 + 7 * 3.2e14 = 4.8e15 < 2^53.
    local function mul_div(a, b, d)
        if a * b < 9007199254740992 then
            local left = a * b % d
            return (a * b - left) / d, left
        end
        local quotient, left, scale = 0, 0, 68719476736 -- 2^36, above every a
        repeat
            scale = scale / 8
            local digit = floor(a / scale) % 8
            local sum = left * 8 + digit * b
            left = sum % d
            quotient = quotient * 8 + (sum - left) / d
        until scale == 1
        return quotient, left
    end

    local elapsed = now % period
    local number, previous, current = (now - elapsed) / period, 0, 0
    if state then
        local version, was_number, was_previous, was_current = unpack('>BI7I5I5', state)
        if version ~= 97 then return nil, 'the key holds no state of sliding_counter' end
        if number <= was_number then
            -- A window later than now counts as just begun.
            if number < was_number then number, elapsed = was_number, 0 end
            previous, current = was_previous, was_current
        elseif number == was_number + 1 then
            previous = was_current
        end
    end
    -- The estimate, rounded up to a unit.
    local function estimate()
        if previous == 0 then return current end
        local units, left = mul_div(previous, period - elapsed, period)
        return current + units + (left > 0 and 1 or 0)
    end
    -- How long into a window so many units must fade until the cost fits; the whole period means
    -- not within this window.
    local function fade(units, room)
        if units <= room then return 0 end
        return period - (mul_div(room, period, units))
    end
    local after, expiry
    local function store()
        if verb ~= 'peek' then after = pack('>BI7I5I5', 97, number, previous, current) end
    end
    local function answer(outcome, granted, retry)
        local used = estimate()
        expiry = number * period
        if current > 0 then
            expiry = expiry + 2 * period
        elseif previous > 0 then
            expiry = expiry + period
        end
        return outcome, granted, limit, limit > used and limit - used or 0, retry,
            expiry > now and expiry - now or 0, after, expiry
    end
    local function add(units)
        if units == 0 then return end
        current = current + units
        store()
    end
    local function deny(units)
        local start = number * period
        local room = limit - units - current
        if room >= 0 then
            local faded = fade(previous, room)
            if faded < period then return answer(1, 0, start + faded - now) end
        end
        return answer(1, 0, start + period + fade(current, limit - units) - now)
    end

    if verb == 'refund' then
        -- Each counter belongs to a known window, so units go back to the one of their grant.
        if at < 0 or at > now then at = now end
        local in_window, units = floor(at / period), 0
        if in_window >= number then
            units = cost < current and cost or current
            current = current - units
        elseif in_window + 1 == number then
            units = cost < previous and cost or previous
            previous = previous - units
        end
        if units > 0 then store() end
        return answer(0, units, 0)
    end
    return counted(verb, cost, estimate(), limit, count_denied, add, deny, answer)
end
