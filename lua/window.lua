-- SPDX-License-Identifier: MIT
-- The law of src/core/window.c. x: the resolution M, 10 to 24 slots in a period; 0 is 24.
--
-- State, '>BI4I7BI4B': 0x11, the limit N, the newest slot as (its period's number, its part of the
-- period), units left of the bunch in use, the place of the short bunch among the bunches (0: none
-- is alive). Then a byte for each bunch that is charged, oldest first: the low 8 bits of its slot's
-- number. A slot has the number floor(now * M / W), which would pass 2^53 for short periods, so it
-- is kept in two: number = floor(now / W), below 2^53 because now is, and
-- part = floor((now mod W) * M / W), where (now mod W) * M < 10 years in us * 24 = 7.6e15, and
-- 2^53 = 9.0e15. Bunches that are alive are at most M slots old, so eight bits tell how old.

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

local function window(state, verb, cost, now, at, limit, period, resolution)
    if resolution == 0 then resolution = 24 end
    if resolution < 10 or resolution > 24 or resolution % 1 ~= 0 then
        return nil, 'resolution: expected 10 to 24'
    end
    local bunch = (limit + -limit % resolution) / resolution
    local most = (limit + -limit % bunch) / bunch -- bunches
    local short = limit - bunch * (most - 1)      -- what the last of them holds
    local since = now % period
    local number, part = (now - since) / period, since * resolution
    part = (part - part % period) / period
    local low = (number % 256 * resolution + part) % 256
    local bunches, n, rest, place, last = '', 0, 0, 0, nil -- last: the low bits of the newest bunch
    if state then
        local version, was_limit, was_number, was_part, was_rest, was_place =
            unpack('>BI4I7BI4B', state)
        if version ~= 17 then return nil, 'the key holds no state of window' end
        -- Past 2^53 the product is rounded, but never across a number as small as these.
        local gone = (number - was_number) * resolution + part - was_part
        if gone < 0 then -- a state that is later than now stays where it is
            number, part = was_number, was_part
            low = (number % 256 * resolution + part) % 256
        end
        if gone <= resolution then
            local dead = 0
            n, rest, place = #state - 18, was_rest, was_place
            while dead < n and (low - state:byte(dead + 19)) % 256 > resolution do
                dead = dead + 1
            end
            n = n - dead
            place = place > dead and place - dead or 0
            if n > 0 then
                bunches, last = state:sub(dead + 19), state:byte(-1)
            else
                rest = 0
            end
        end
        if was_limit ~= limit and n > 0 then
            -- Under another limit the same units are charged once more, as many as fit.
            local old, old_n, old_rest, old_place = bunches, n, rest, place
            local old_bunch = (was_limit + -was_limit % resolution) / resolution
            local old_most = (was_limit + -was_limit % old_bunch) / old_bunch
            local left = limit
            bunches, n, rest, place = '', 0, 0, 0
            for i = 1, old_n do
                local units = old_bunch
                if i == old_place then units = was_limit - old_bunch * (old_most - 1) end
                if i == old_n then units = units - old_rest end
                if units > left then units = left end
                if units > 0 then
                    bunches, n, rest, place = window_charge(bunches, n, rest, place, old:byte(i),
                                                            units, bunch, short, most)
                end
                left = left - units
            end
            last = bunches:byte(-1)
        end
    end
    local free = limit - n * bunch + rest
    if place > 0 then free = free + bunch - short end

    local granted, refused = cost, nil
    if verb == 'take' or verb == 'peek' then
        if cost > free then refused = cost end
    elseif verb == 'take_upto' then
        if cost > 0 and free == 0 then refused = 1 end
        if cost > free then granted = free end
    elseif verb == 'charge' then
        if cost > free then granted = free end
    elseif verb == 'book' or verb == 'unbook' then
        return 2, 0, limit, 0, -1, 0
    end

    local after, retry, outcome, stays = nil, 0, 0, false
    if refused then
        granted, outcome = 0, 1
        if refused > limit then
            outcome, retry = 2, -1
        else
            -- The oldest bunches that together bring back what is missing.
            local missing, i = refused - free, 0
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
        -- grant: src/core/window.c. What was granted more than M slots ago is no longer recorded.
        local age = 0
        if at >= 0 then
            if at > now then at = now end
            local at_since = at % period
            local at_part = at_since * resolution
            age = (number - (at - at_since) / period) * resolution + part
                - (at_part - at_part % period) / period
        end
        local left = cost
        if age <= resolution then
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
        free = free + granted
    elseif granted > 0 then
        stays, last = last == low, low
        bunches, n, rest, place = window_charge(bunches, n, rest, place, low, granted, bunch, short,
                                                most)
        free = free - granted
    end

    -- A state without bunches is like new, but its own time does not go back.
    local dies
    if n > 0 then
        local last_number, last_part = number, part - (low - last) % 256
        if last_part < 0 then
            last_number, last_part = number - 1, last_part + resolution
        end
        local into = (last_part + 1) * period
        dies = (last_number + 1) * period + (into + -into % resolution) / resolution
    else
        dies = part * period
        dies = number * period + (dies + -dies % resolution) / resolution
    end
    if granted > 0 and verb ~= 'peek' then
        after = pack('>BI4I7BI4B', 17, limit, number, part, rest, place) .. bunches
    end
    return outcome, granted, limit, free, retry, dies > now and dies - now or 0, after, dies, stays
end
