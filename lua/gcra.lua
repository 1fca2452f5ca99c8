-- SPDX-License-Identifier: MIT
-- The algorithm of src/algorithm/gcra.c. x: the burst; 0: limit. y: 1 charges refused takes too.
--
-- State, '>BI7I2': 0x41, the theoretical arrival time (TAT) in us, and 32,000ths of a us: the ticks
-- of 1/32 ns that the C code counts. Every length of time here is such a pair, ticks below 32,000.
-- T = ceil(W * 32000 / N) ticks: W = q * N + r gives q us and r * 32000 / N ticks, and r * 32000 is
-- below 2^32 * 32000 = 1.4e14.
-- n * T for n <= 2 * burst: n times the ticks is < 2^33 * 32000 = 2.8e14, n times the us is at most
-- two capacities of 10.3 years = 6.5e14; all below 2^53 = 9.0e15. A TAT is at most that after now.
local floor, ceil = math.floor, math.ceil

local function gcra(state, verb, cost, now, at, limit, period, burst, count_denied)
    if burst == 0 then burst = limit end
    local over = period % limit
    local t_us, t_ticks = (period - over) / limit, ceil(over * 32000 / limit)
    if t_ticks == 32000 then t_us, t_ticks = t_us + 1, 0 end
    local room_ticks = burst * t_ticks
    local room_us = burst * t_us + floor(room_ticks / 32000) -- the capacity
    room_ticks = room_ticks % 32000
    if room_us > 324000000000000 then
        return nil, 'burst: takes longer than 10 years to refill'
    end
    local tat_us, tat_ticks = 0, 0
    if state then
        local version
        version, tat_us, tat_ticks = unpack('>BI7I2', state)
        if version ~= 65 then return nil, 'the key holds no state of gcra' end
    end
    local after, expiry

    -- floor(length / T). The quotient of rounded numbers is at most one off, as it is below 2^34.
    local function whole(us, ticks)
        if us < 0 then return 0 end
        local units = floor((us * 32000 + ticks) / (t_us * 32000 + t_ticks))
        local rest_ticks = ticks - units * t_ticks
        local rest_us = us - units * t_us + floor(rest_ticks / 32000)
        rest_ticks = rest_ticks % 32000
        if rest_us < 0 then return units - 1 end
        if rest_us > t_us or (rest_us == t_us and rest_ticks >= t_ticks) then return units + 1 end
        return units
    end
    -- How far the TAT is after now, and how far it would be after n units.
    local function ahead(n)
        local us, ticks = tat_us - now, tat_ticks
        if us < 0 then us, ticks = 0, 0 end
        ticks = ticks + n * t_ticks
        return us + n * t_us + floor(ticks / 32000), ticks % 32000
    end
    local function set(us, ticks)
        tat_us, tat_ticks = now + us, ticks
        after = pack('>BI7I2', 65, tat_us, tat_ticks)
        expiry = ticks > 0 and tat_us + 1 or tat_us
    end
    local function answer(outcome, granted, retry)
        local us, ticks = ahead(0)
        local left_us, left_ticks = room_us - us, room_ticks - ticks
        if left_ticks < 0 then left_us, left_ticks = left_us - 1, left_ticks + 32000 end
        return outcome, granted, burst, whole(left_us, left_ticks), retry,
            ticks > 0 and us + 1 or us, after, expiry
    end
    -- As many of n units as the debt of a capacity allows.
    local function charge(n)
        local us, ticks = ahead(0)
        ticks = 2 * room_ticks - ticks
        us = 2 * room_us - us + floor(ticks / 32000)
        local units = whole(us, ticks % 32000)
        if units > n then units = n end
        if units > 0 then set(ahead(units)) end
        return units
    end
    -- How long until n units fit, in us rounded up; 0 if they do.
    local function wait(n)
        local us, ticks = ahead(n)
        us, ticks = us - room_us, ticks - room_ticks
        if ticks > 0 then us = us + 1 end
        return us > 0 and us or 0
    end

    if verb == 'charge' then return answer(0, charge(cost), 0) end
    if verb == 'refund' or verb == 'unbook' then
        -- During a booking, or in debt, only the latest booking comes back.
        local start_us, start_ticks = tat_us - room_us, tat_ticks - room_ticks
        local start = start_ticks > 0 and start_us + 1 or start_us
        if start > now and not (verb == 'unbook' and at == start) then return answer(0, 0, 0) end
        if tat_us < now then return answer(0, 0, 0) end
        -- n*T less what has flowed back. Where n*T exceeds 2^53 and is rounded, the lost us do not
        -- matter: it is far more than the TAT is after now.
        local ticks = cost * t_ticks
        local us = cost * t_us + floor(ticks / 32000)
        ticks = ticks % 32000
        if at >= 0 and at < now then us = us - (now - at) end
        local most_us, most_ticks = ahead(0)
        if us > most_us or (us == most_us and ticks > most_ticks) then
            us, ticks = most_us, most_ticks
        end
        if us < 0 or (us == 0 and ticks == 0) then return answer(0, 0, 0) end
        local units = whole(us, ticks)
        ticks = most_ticks - ticks
        set(most_us - us + floor(ticks / 32000), ticks % 32000)
        return answer(0, units < cost and units or cost, 0)
    end
    if verb == 'book' then
        if cost > burst then return answer(2, 0, -1) end
        local start = wait(cost)
        if start > at then return answer(1, 0, start - at) end
        if cost > 0 then set(ahead(cost)) end
        return answer(0, cost, start)
    end
    local asked = cost
    if verb == 'take_upto' and cost > 0 then
        local _, _, _, remaining = answer(0, 0, 0)
        if remaining == 0 then
            return answer(1, 0, wait(1))
        end
        if remaining < cost then asked = remaining end
    end
    if asked == 0 then -- denied in debt alone
        local us = wait(0)
        return answer(us > 0 and 1 or 0, 0, us)
    end
    if asked > burst then return answer(2, 0, -1) end
    local us, ticks = ahead(asked)
    if us < room_us or (us == room_us and ticks <= room_ticks) then
        set(us, ticks)
        local outcome, granted, capacity, remaining, retry, reset = answer(0, asked, 0)
        if verb == 'peek' then after = nil end
        return outcome, granted, capacity, remaining, retry, reset, after, expiry
    end
    if count_denied == 1 and verb == 'take' then charge(asked) end
    return answer(1, 0, wait(asked))
end
