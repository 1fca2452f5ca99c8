-- SPDX-License-Identifier: MIT
-- The algorithm of src/algorithm/fixed_window.c. x: where windows begin, as enum stint_align: 0 at
-- multiples of the period since 1970, 1 with the first use of the key, 2 to 5 with calendar days,
-- ISO weeks, months, years. y: their offset from UTC in seconds. z: 1 charges refused takes too.
--
-- State, '>BI7I5': 0x51, when the window ends, units counted (up to 2N by charges, below 2^34).
local floor = math.floor

local function fixed_window(state, verb, cost, now, at, limit, period, align, offset, count_denied)
    local day_us = 86400000000
    local function days_before_year(year) -- from 1 January of year 1
        local past = year - 1
        return 365 * past + floor(past / 4) - floor(past / 100) + floor(past / 400)
    end
    local function days_before_month(year, month) -- 1 is January; 13 is the next one
        local days = ({0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365})[month]
        local leap = days_before_year(year + 1) - days_before_year(year) == 366
        return days_before_year(year) + days + (leap and month > 2 and 1 or 0)
    end
    -- The window of an instant.
    local function span(instant)
        if align < 2 then
            local since = instant % period
            return instant - since, instant - since + period
        end
        local day = floor((instant + offset * 1000000) / day_us) + 719162
        local first, last = day, day + 1
        if align == 3 then
            first = day - day % 7 -- 1 January of year 1 was a Monday
            last = first + 7
        elseif align > 3 then
            local year = floor(day * 400 / 146097) + 1 -- at most one off
            if days_before_year(year) > day then
                year = year - 1
            elseif days_before_year(year + 1) <= day then
                year = year + 1
            end
            first, last = days_before_year(year), days_before_year(year + 1)
            if align == 4 then
                local month = floor((day - first) / 31) + 1 -- right, or one too low
                if days_before_month(year, month + 1) <= day then month = month + 1 end
                first, last = days_before_month(year, month), days_before_month(year, month + 1)
            end
        end
        return (first - 719162) * day_us - offset * 1000000,
            (last - 719162) * day_us - offset * 1000000
    end

    if not (align >= 0 and align <= 5 and align % 1 == 0
            and offset > -86400 and offset < 86400 and offset % 1 == 0) then
        return nil, 'align: expected 0 to 5, with an offset of less than a day'
    end
    local ends, count, live, stays = 0, 0, false, false
    if state then
        local version, was
        version, ends, was = unpack('>BI7I5', state)
        if version ~= 81 then return nil, 'the key holds no state of fixed_window' end
        if now < ends then count, live, stays = was, true, true end
    end
    local after
    local function add(units)
        if units == 0 then return end
        if not live then
            live = true
            if align == 1 then
                ends = now + period
            else
                local _, last = span(now)
                ends = last
            end
        end
        count = count + units
        if verb ~= 'peek' then after = pack('>BI7I5', 81, ends, count) end
    end
    local function answer(outcome, granted, retry)
        return outcome, granted, limit, limit > count and limit - count or 0, retry,
            live and ends - now or 0, after, ends, stays
    end
    local function deny() return answer(1, 0, ends - now) end

    if verb == 'refund' then
        -- Units come back only to the window in which they were granted.
        if cost > count then cost = count end
        local begins = ends - period
        if align ~= 1 and live then begins = span(ends - 1) end
        if at >= 0 and at < begins then cost = 0 end
        if cost > 0 then
            count = count - cost
            after = pack('>BI7I5', 81, ends, count)
        end
        return answer(0, cost, 0)
    end
    return counted(verb, cost, count, limit, count_denied, add, deny, answer)
end
