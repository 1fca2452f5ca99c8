-- SPDX-License-Identifier: MIT
-- The counter of src/algorithm/expiring_counter.c: charge adds, refund subtracts, peek reads. limit:
-- what remaining is counted from; period: after how long a counter that begins now expires.
--
-- State, '>BI7I7': 0x91, when the counter expires, the count, at most 2^52 - 1.
local function counter(state, verb, cost, now, at, limit, period)
    local ends, count, live = 0, 0, false
    if state then
        local version, was
        version, ends, was = unpack('>BI7I7', state)
        if version ~= 145 then return nil, 'the key holds no state of counter' end
        if now < ends then count, live = was, true end
    end
    local before, stays, after = count, live, nil
    if verb == 'charge' then
        count = math.min(count + cost, 4503599627370495)
        if not live and cost > 0 then ends, live = now + period, true end
    elseif verb == 'refund' then
        count = math.max(count - cost, 0)
    elseif verb ~= 'peek' then
        return 2, 0, limit, 0, -1, 0
    end
    if count ~= before then after = pack('>BI7I7', 145, ends, count) end
    return 0, math.abs(count - before), limit, math.max(limit - count, 0), 0,
        live and ends - now or 0, after, ends, stays, count, 0
end
