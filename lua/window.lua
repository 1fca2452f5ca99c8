-- SPDX-License-Identifier: MIT
-- The algorithm of src/algorithm/window.c. x: the resolution M, 10 to 112 slots a period; 0 is 24.
--
-- State, '>BI4I7BI4B': 0x11, the limit N, the newest slot as (its period's number, its part of the
-- period), units left of the bunch in use, the position of the short bunch among the bunches (0:
-- not there). 0x12 is the same with a byte more: how many bunches charges have displaced, if not 0.
-- Then a byte for each bunch that is charged, oldest first: the low 8 bits of its slot's number.
-- A slot has the number floor(now * M / W), which would exceed 2^53 for short periods, so it
-- is kept in two: number = floor(now / W), below 2^53 because now is, and
-- part = floor((now mod W) * M / W), where (now mod W) * M < 10 years in us * 24 = 7.6e15, and
-- 2^53 = 9.0e15; the server refuses periods for which a finer resolution needs more. Live bunches
-- are at most M slots old, and 2 M when a state is read, so eight bits are enough for their age.

-- Charges units that are free to a slot: to the bunch in use, which moves there, and to new
-- bunches, the short one last. (a - a % b) / b is floor(a / b), and (a + -a % b) / b is
-- ceil(a / b), exact and without a call.
local function window_charge(bunches, n, rest, place, low, units, bunch, short, most)
    if rest > 0 then
        if bunches:byte(-1) ~= low then bunches = bunches:sub(1, -2) .. string.char(low) end
        if units <= rest then return bunches, n, rest - units, place end
    end
    local opened = units - rest
    opened = (opened + -opened % bunch) / bunch
    local whole = most - n
    if short < bunch and place == 0 then whole = whole - 1 end
    n, rest = n + opened, rest + opened * bunch - units
    bunches = bunches .. string.char(low):rep(opened)
    if opened > whole then return bunches, n, rest - bunch + short, n end
    return bunches, n, rest, place
end

-- The number of displaced bunches that also stands for more: the largest in as many bits as the
-- C code's state has that no slot number needs, 1 to 5. src/algorithm/window.c.
local function window_displaced_max(bunch, short, most, period, resolution)
    local function bits(number)
        local _, exponent = math.frexp(number)
        return exponent
    end
    local all = resolution > 24 and 256 or resolution > 12 and 112 or 64
    local spare = all - 2 * resolution - 1 - bits(bunch - 1)
        - (short < bunch and bits(most) or 0) - (51 + bits(resolution) - bits(period))
    return 2 ^ (spare < 1 and 1 or spare > 5 and 5 or spare) - 1
end

-- Charges units whether they fit or not: those that do not displace the oldest bunches, which are
-- opened again in this slot.
local function window_displace(bunches, n, rest, place, displaced, low, units, limit, bunch, short,
                               most, period, resolution)
    local fitting = limit - n * bunch + rest
    if place > 0 then fitting = fitting + bunch - short end
    if fitting > units then fitting = units end
    if fitting > 0 then
        bunches, n, rest, place = window_charge(bunches, n, rest, place, low, fitting, bunch, short,
                                                most)
    end
    units = units - fitting
    if units == 0 then return bunches, n, rest, place, displaced end
    local moved = 0
    while units > 0 and moved < most do
        bunches, moved = bunches:sub(2) .. string.char(low), moved + 1
        if place > 0 then place = place == 1 and n or place - 1 end
        rest = place == n and short or bunch
        local used = units < rest and units or rest
        rest, units = rest - used, units - used
    end
    displaced = displaced + moved + (units + -units % bunch) / bunch
    local displaced_max = window_displaced_max(bunch, short, most, period, resolution)
    return bunches, n, rest, place, displaced < displaced_max and displaced or displaced_max
end

local function window(state, verb, cost, now, at, limit, period, resolution)
    if resolution == 0 then resolution = 24 end
    if resolution < 10 or resolution > 112 or resolution % 1 ~= 0 then
        return nil, 'resolution: expected 10 to 112'
    end
    local bunch = (limit + -limit % resolution) / resolution
    local most = (limit + -limit % bunch) / bunch -- bunches
    local short = limit - bunch * (most - 1)      -- units of the last of them
    local since = now % period
    local number, part = (now - since) / period, since * resolution
    part = (part - part % period) / period
    local low = (number % 256 * resolution + part) % 256
    local bunches, n, rest, place, last = '', 0, 0, 0, nil -- last: the low bits of the newest bunch
    local displaced = 0 -- bunches, until the oldest that is left comes back
    if state then
        local version, was_limit, was_number, was_part, was_rest, was_place =
            unpack('>BI4I7BI4B', state)
        if version ~= 17 and version ~= 18 then return nil, 'the key holds no state of window' end
        -- Above 2^53 the product is rounded, but never across a number as small as these.
        local gone = (number - was_number) * resolution + part - was_part
        if gone < 0 then -- a state that is later than now is not changed
            number, part = was_number, was_part
            low = (number % 256 * resolution + part) % 256
        end
        if gone <= resolution then
            local expired = 0
            local head = version + 1
            n, rest, place = #state - head, was_rest, was_place
            while expired < n and (low - state:byte(expired + head + 1)) % 256 > resolution do
                expired = expired + 1
            end
            if expired == 0 and version == 18 then displaced = state:byte(19) end
            n = n - expired
            place = place > expired and place - expired or 0
            if n > 0 then
                bunches, last = state:sub(expired + head + 1), state:byte(-1)
            else
                rest = 0
            end
        end
        if was_limit ~= limit and n > 0 then
            -- Under another limit the same units are charged once more, those of a slot together.
            local old, old_n, old_rest, old_place = bunches, n, rest, place
            local old_bunch = (was_limit + -was_limit % resolution) / resolution
            local old_most = (was_limit + -was_limit % old_bunch) / old_bunch
            local units = displaced * old_bunch
            bunches, n, rest, place, displaced = '', 0, 0, 0, 0
            for i = 1, old_n do
                units = units + old_bunch
                if i == old_place then units = units - old_bunch * old_most + was_limit end
                if i == old_n then units = units - old_rest end
                if old:byte(i) ~= old:byte(i + 1) then
                    bunches, n, rest, place, displaced = window_displace(
                        bunches, n, rest, place, displaced, old:byte(i), units, limit, bunch, short,
                        most, period, resolution)
                    units = 0
                end
            end
            last = bunches:byte(-1)
        end
    end
    local empty = limit - n * bunch + rest
    if place > 0 then empty = empty + bunch - short end
    local free = displaced > 0 and 0 or empty

    local granted, refused = cost, nil
    if verb == 'take' or verb == 'peek' then
        if cost > free then refused = cost end
    elseif verb == 'take_upto' then
        if cost > 0 and free == 0 then refused = 1 end
        if cost > free then granted = free end
    elseif verb == 'charge' then
        if cost > limit then granted = limit end
    elseif verb == 'book' or verb == 'unbook' then
        return 2, 0, limit, 0, -1, 0
    end

    local after, retry, outcome, stays = nil, 0, 0, false
    if refused then
        granted, outcome = 0, 1
        if refused > limit then
            outcome, retry = 2, -1
        else
            -- The oldest bunches that together bring back what is missing; displaced ones come back
            -- with the first.
            local missing, i = refused - empty, 0
            repeat
                i = i + 1
                local back = i == place and short or bunch
                if i == n then back = back - rest end
                missing = missing - back
            until missing <= 0 or i == n
            local back_number, back_part = number, part - (low - bunches:byte(i)) % 256
            if back_part < 0 then
                back_number, back_part = number - 1, back_part + resolution
            end
            local into = (back_part + 1) * period
            retry = (back_number + 1) * period + (into + -into % resolution) / resolution - now
        end
    elseif verb == 'refund' then
        -- Safe are the oldest units, and those of the bunch in use if it was used no later than the
        -- grant: src/algorithm/window.c. A grant more than M slots ago is no longer recorded.
        local age = 0
        if at >= 0 then
            if at > now then at = now end
            local at_since = at % period
            local at_part = at_since * resolution
            age = (number - (at - at_since) / period) * resolution + part
                - (at_part - at_part % period) / period
        end
        local left = cost
        if displaced > 0 and age <= resolution
                and displaced < window_displaced_max(bunch, short, most, period, resolution) then
            -- The displaced are the oldest.
            local back = (left - left % bunch) / bunch
            if back > displaced then back = displaced end
            displaced, left = displaced - back, left - back * bunch
        end
        if age <= resolution and displaced == 0 then
            while n > 0 do
                local used = place == 1 and short or bunch
                if n == 1 then used = used - rest end
                if used > left then break end
                left, n, bunches = left - used, n - 1, bunches:sub(2)
                if place > 0 then place = place - 1 end
                if n == 0 then rest = 0 end
            end
            if left > 0 and n > 0 and (n == 1 or (low - last) % 256 >= age) then
                local used = (place == n and short or bunch) - rest
                if left < used then
                    rest, left = rest + left, 0
                else
                    if place == n then place = 0 end
                    rest, left, n, bunches = 0, left - used, n - 1, bunches:sub(1, -2)
                    last = bunches:byte(-1)
                end
            end
        end
        granted = cost - left
        free = limit - n * bunch + rest + (place > 0 and bunch - short or 0)
        if displaced > 0 then free = 0 end
    elseif verb == 'charge' and granted > 0 then
        stays, last = last == low, low
        bunches, n, rest, place, displaced = window_displace(
            bunches, n, rest, place, displaced, low, cost, limit, bunch, short, most, period, resolution)
        free = displaced > 0 and 0 or free - granted
    elseif granted > 0 then
        stays, last = last == low, low
        bunches, n, rest, place = window_charge(bunches, n, rest, place, low, granted, bunch, short,
                                                most)
        free = free - granted
    end

    -- A state without bunches is like new, but its own time does not go back.
    local expiry
    if n > 0 then
        local last_number, last_part = number, part - (low - last) % 256
        if last_part < 0 then
            last_number, last_part = number - 1, last_part + resolution
        end
        local into = (last_part + 1) * period
        expiry = (last_number + 1) * period + (into + -into % resolution) / resolution
    else
        expiry = part * period
        expiry = number * period + (expiry + -expiry % resolution) / resolution
    end
    if granted > 0 and verb ~= 'peek' then
        after = pack('>BI4I7BI4B', displaced > 0 and 18 or 17, limit, number, part, rest, place)
            .. (displaced > 0 and string.char(displaced) or '') .. bunches
    end
    return outcome, granted, limit, free, retry, expiry > now and expiry - now or 0, after, expiry, stays
end
