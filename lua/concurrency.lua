-- SPDX-License-Identifier: MIT
-- The algorithm of src/algorithm/concurrency.c; the period is the lease. Two more verbs: `release`
-- gives a holder's units back, `renew` moves its deadline; `at` and `cost` are the two numbers of
-- the holder.
--
-- A holder is a value that is larger than every one issued before: a deadline, and a count in
-- 16,000ths of a us, 16 to a nanosecond as in the C code. (One number would exceed 2^53.)
-- State, '>BI7I2': 0x71, the value issued last. Then '>I7I2I2' for each holder, oldest first: its
-- value, its units. At most 8,190 holders.
local function concurrency(state, verb, cost, now, at, limit, lease)
    if limit > 8190 then return nil, 'limit: expected at most 8190 for concurrency' end
    local issued, issued_sub, n = 0, 0, 0
    if state then
        local version
        version, issued, issued_sub = unpack('>BI7I2', state)
        if version ~= 113 then return nil, 'the key holds no state of concurrency' end
        n = (#state - 10) / 11
    end
    local function entry(i)
        return unpack('>I7I2I2', state, 11 * i)
    end
    local function ends(us, sub) -- rounded up
        return sub >= 16 and us + 1 or us
    end
    local held, ended = 0, 0
    for i = n, 1, -1 do
        local us, sub, units = entry(i)
        if ends(us, sub) <= now then
            ended = i
            break
        end
        held = held + units
    end
    local free = held < limit and limit - held or 0
    -- An empty state differs from a new one while it might issue a value again.
    local function expires_at()
        if n > 0 then return ends(entry(n)) end
        return issued > 0 and issued + 1 - lease or 0
    end
    local function reset_after(expiry)
        return expiry > now and expiry - now or 0
    end
    local function next_value()
        local us, sub = now + lease, 0
        if issued >= us then
            us, sub = issued, issued_sub + 1
            if sub == 16000 then us, sub = us + 1, 0 end
        end
        return us, sub
    end
    local function keep(body, us, sub, units)
        issued, issued_sub = us, sub
        return pack('>BI7I2', 113, us, sub) .. body .. pack('>I7I2I2', us, sub, units)
    end

    if verb == 'release' or verb == 'renew' then
        for i = ended + 1, n do
            local us, sub, units = entry(i)
            if us == at and sub == cost then
                local head, tail = state:sub(11, 11 * i - 1), state:sub(11 * i + 11)
                if verb == 'renew' then
                    us, sub = next_value()
                    return 0, units, limit, free, 0, ends(us, sub) - now,
                        keep(head .. tail, us, sub, units), ends(us, sub), false, us, sub
                end
                state, n = state:sub(1, 10) .. head .. tail, n - 1
                return 0, units, limit, free + units, 0, reset_after(expires_at()), state, expires_at()
            end
        end
        return 0, 0, limit, free, 0, reset_after(expires_at())
    elseif verb == 'refund' then -- units are given back by release, which names their holder
        return 0, 0, limit, free, 0, reset_after(expires_at())
    elseif verb == 'book' or verb == 'unbook' then
        return 2, 0, limit, 0, -1, 0
    end

    local whole = verb == 'take' or verb == 'peek'
    local granted = cost
    if cost > free then granted = whole and 0 or free end
    if granted == 0 then
        local outcome, retry = 0, 0
        if cost > 0 and verb ~= 'charge' then
            outcome, retry = 1, 0
            if whole and cost > limit then
                outcome, retry = 2, -1
            else
                local missing, i = whole and cost - free or 1, ended
                repeat
                    i = i + 1
                    local us, sub, units = entry(i)
                    missing, retry = missing - units, ends(us, sub) - now
                until missing <= 0 or i == n
            end
        end
        return outcome, 0, limit, free, retry, reset_after(expires_at())
    end
    local us, sub = next_value()
    if verb == 'peek' then
        return 0, granted, limit, free - granted, 0, ends(us, sub) - now
    end
    local body = state and state:sub(11 * ended + 11) or ''
    return 0, granted, limit, free - granted, 0, ends(us, sub) - now,
        keep(body, us, sub, granted), ends(us, sub), false, us, sub
end
