-- SPDX-License-Identifier: MIT
-- Leased units do not fit anything else, and are no use of the algorithm yet: a lease is charged at
-- its end, or when its holder reports what was used of it, which is never before it was used. So at
-- every instant the algorithm has at least the leased units free, and no charge is ever cut short.
-- docs/decisions/0039-leases.md.
local verb, cost, now, at = ARGV[1], ARGV[2] + 0, ARGV[3], ARGV[4] + 0
local limit, period = ARGV[5] + 0, ARGV[6] + 0
local x, y, z, term = ARGV[7], ARGV[8], ARGV[9], ARGV[10]
x, y, z, term = x and x + 0 or 0, y and y + 0 or 0, z and z + 0 or 0, term and term + 0 or 0
local virtual = now ~= '0'
if virtual then
    now = now + 0
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local settles = verb == 'lease' or verb == 'return' or verb == 'reset'
local known = settles or verb == 'take' or verb == 'take_upto' or verb == 'peek'
    or verb == 'charge' or verb == 'refund'
if not (known and #KEYS == 2 and #ARGV >= 6 and (#ARGV <= 10 or settles and #ARGV % 3 == 1)
        and cost >= 0 and cost <= 4294967295 and cost % 1 == 0
        and limit >= 0 and limit <= 4294967295 and limit % 1 == 0
        and period >= 1 and period <= 315360000000000 and period % 1 == 0
        and term >= 0 and term <= 315360000000000 and term % 1 == 0
        and now >= 0 and now <= 8000000000000000 and now % 1 == 0
        and at >= -1 and at <= 9007199254740991 and at % 1 == 0) then
    return redis.error_reply('STINT expected two keys, and: verb cost now at limit period [x y z '
        .. '[term {end units left}...]], cost and limit to 2^32-1, times in us, a period of 1 us '
        .. 'to 10 years')
end
if ('ALGORITHM' == 'gcra' and y ~= 0) or ('ALGORITHM' == 'fixed_window' and z ~= 0)
        or ('ALGORITHM' == 'sliding_counter' and x ~= 0) then
    return redis.error_reply('STINT takes that are refused cannot be counted where units are '
        .. 'leased')
end
if limit == 0 then -- nothing is leased under it, and leases under another limit end by themselves
    local closed = cost > 0 and verb ~= 'refund' and verb ~= 'return' and verb ~= 'reset'
    return {closed and 2 or 0, 0, 0, 0, closed and -1 or 0, 0, 0, now}
end

local state, list = call('GET', KEYS[1]), call('GET', KEYS[2])
if list and (list:byte() ~= 129 or #list % 11 ~= 1) then
    return redis.error_reply('STINT the key holds no leases')
end
local expiry, is_charged, is_changed = 0, false, false
local function charge(units, instant)
    local _, _, _, _, _, _, after, expires_at =
        ALGORITHM(state, 'charge', units, instant, 0, limit, period, x, y, z)
    if after then state, expiry, is_charged = after, expires_at, true end
end

-- First, what has ended is charged at its end; the rest is borrowed.
local ends, units, n, out = {}, {}, 0, 0
for place = 2, list and #list or 0, 11 do
    local stop, some = unpack('>I7I4', list, place)
    if stop <= now then
        charge(some, stop)
        is_changed = true
    else
        n, out = n + 1, out + some
        ends[n], units[n] = stop, some
    end
end
-- Then what the caller returns: what it used is charged now, the rest is free again.
for word = 11, #ARGV, 3 do
    local stop, some, left = ARGV[word] + 0, ARGV[word + 1] + 0, ARGV[word + 2] + 0
    for i = 1, n do
        if ends[i] == stop and units[i] == some and left >= 0 and left <= some then
            table.remove(ends, i)
            table.remove(units, i)
            n, out, is_changed = n - 1, out - some, true
            if left < some then charge(some - left, now) end
            break
        end
    end
end

local outcome, granted, capacity, remaining, retry, reset, after, expires_at, stays
local function ask(asked, number, instant)
    outcome, granted, capacity, remaining, retry, reset, after, expires_at, stays =
        ALGORITHM(state, asked, number, instant or now, at, limit, period, x, y, z)
    return outcome
end
-- The units fit into what is free, but not into what the leases leave. They will when they fit
-- beside all that is borrowed, if that is before the first of them ends. Else the wait is until
-- enough comes back after all have been charged: an algorithm may keep older units that long.
local function deny(number, free)
    local wait
    if number + out <= capacity then
        ask('peek', number + out)
        if n == 0 or now + retry <= ends[1] then wait = retry end
    end
    if not wait then
        local before, charged, expiry_before = state, is_charged, expiry
        for i = 1, n do charge(units[i], ends[i]) end
        ask('peek', number, ends[n])
        wait = retry + ends[n] - now
        state, is_charged, expiry = before, charged, expiry_before
    end
    ask('peek', 0)
    outcome, granted, remaining, retry = 1, 0, free, wait
end
local lease_ends = 0
local function lend()
    local least = at > 1 and at or 1
    if not ask('peek', least) or outcome == 2 then return end
    local free = remaining + granted
    if free - out < least then return deny(least, free) end
    if n == 64 then -- no more leases, but units may be taken
        return ask('peek', 0)
    end
    -- The capacity is shared with the other holders, and as much is left for further ones.
    local share = math.floor((free - out) / (2 * (n + 1)))
    if share < least then share = least end
    if share > cost then share = cost > least and cost or least end
    if term == 0 then return ask('take', share) end
    ask('peek', 0)
    -- No two end at once: a return that arrives twice must not find the lease of another.
    local place = 1
    lease_ends = now + term
    while place <= n and ends[place] <= lease_ends do
        if ends[place] == lease_ends then lease_ends = lease_ends + 1 end
        place = place + 1
    end
    table.insert(ends, place, lease_ends)
    table.insert(units, place, share)
    n, out, is_changed, granted = n + 1, out + share, true, share
end

local others = n
if verb == 'lease' then
    lend()
elseif verb == 'return' then
    if ask('peek', 0) then outcome, retry = 0, 0 end -- in debt, too
elseif verb == 'reset' then
    state, is_charged = false, false
    call('DEL', KEYS[1])
    ask('peek', 0)
elseif verb == 'charge' and out > 0
        and ('ALGORITHM' == 'gcra' or 'ALGORITHM' == 'fixed_window' or 'ALGORITHM' == 'sliding_counter') then
    -- As much as fits beside what is borrowed. The other algorithms keep the newest units anyway.
    local most = ask('charge', cost + out) and granted - out or 0
    if most > 0 and outcome then
        ask('charge', most < cost and most or cost)
    elseif outcome and ask('peek', 0) then
        outcome, retry = 0, 0
    end
elseif ask(verb, cost) and out > 0 and outcome ~= 2 and cost > 0 and verb ~= 'refund'
        and verb ~= 'charge' then
    local free = remaining + granted
    if verb == 'take_upto' and outcome == 0 and free > out then
        if remaining < out then ask('take', free - out) end
    elseif outcome == 1 or remaining < out then
        deny(verb == 'take_upto' and 1 or cost, free)
    end
end
if not outcome then return redis.error_reply('STINT ' .. granted) end
if verb == 'peek' then after = nil end
remaining = remaining > out and remaining - out or 0

-- What is borrowed will be charged once it ends, and keeps the state until then. The state of gcra
-- is a sum: it must be there to be added to.
local bound = 0
if n > 0 then
    local _, _, _, _, _, after_all =
        ALGORITHM(after or state, 'charge', out, ends[n], 0, limit, period, x, y, z)
    if after_all + ends[n] - now > reset then reset = after_all + ends[n] - now end
    if after or is_charged or is_changed then
        local _, _, _, _, _, _, _, latest = ALGORITHM(false, 'charge',
            'ALGORITHM' == 'gcra' and 4294967295 or 1, ends[n], 0, limit, period, x, y, z)
        bound = latest
    end
end
local function until_ms(us) return (us + -us % 1000) / 1000 end
if after then state, expiry = after, expires_at end
if after or is_charged then
    if expiry < bound then expiry = bound end
    if virtual then
        call('SET', KEYS[1], state)
    elseif stays and not is_charged and n == 0 then
        call('SET', KEYS[1], state, 'KEEPTTL')
    elseif expiry <= now then
        call('DEL', KEYS[1])
    else
        call('SET', KEYS[1], state, 'PXAT', until_ms(expiry))
    end
elseif 'ALGORITHM' == 'gcra' and is_changed and n > 0 and state and not virtual then
    call('PEXPIREAT', KEYS[1], until_ms(bound))
end
if is_changed and n == 0 then
    call('DEL', KEYS[2])
elseif is_changed then
    local parts = {'\129'}
    for i = 1, n do parts[i + 1] = pack('>I7I4', ends[i], units[i]) end
    if virtual then
        call('SET', KEYS[2], table.concat(parts))
    else
        call('SET', KEYS[2], table.concat(parts), 'PXAT', until_ms(bound))
    end
end
local reply = {outcome, granted, capacity, remaining, retry, reset, 0, now}
if verb == 'lease' then reply[9], reply[10] = lease_ends, others end
return reply
