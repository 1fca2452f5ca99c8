-- SPDX-License-Identifier: MIT
local algorithms = {
    window = window, buckets = buckets, log = log, gcra = gcra, fixed_window = fixed_window,
    sliding_counter = sliding_counter, concurrency = concurrency,
}
-- Words are converted to numbers by arithmetic, as in single_end.
local verb, now, at = ARGV[1], ARGV[2], ARGV[3] + 0
local virtual = now ~= '0'
if virtual then
    now = now + 0
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local known = verb == 'take' or verb == 'take_upto' or verb == 'peek' or verb == 'charge'
    or verb == 'refund' or verb == 'reset'
if not (known and now >= 0 and now <= 8000000000000000 and now % 1 == 0
        and at >= -1 and at <= 9007199254740991 and at % 1 == 0
        and #KEYS >= 1 and #KEYS <= 32 and #ARGV == 3 + 7 * #KEYS) then
    return redis.error_reply('STINT expected 1 to 32 keys, and: verb now at, and for each key '
        .. 'algorithm cost limit period x y z')
end

-- Equal keys are one part: their costs are added.
local parts, part_of, costs, most, too_much = {}, {}, {}, 4294967295, false
for i = 1, #KEYS do
    local quota, key = 7 * i - 3, KEYS[i]
    local part, cost = part_of[key], ARGV[quota + 1] + 0
    if part then
        for word = 0, 6 do
            if word ~= 1 and ARGV[quota + word] ~= ARGV[part.quota + word] then
                return redis.error_reply('STINT the same key stands for two quotas')
            end
        end
    else
        part = {key = key, index = i - 1, cost = 0, times = 0, quota = quota,
                algorithm = algorithms[ARGV[quota]], limit = ARGV[quota + 2] + 0, period = ARGV[quota + 3] + 0,
                x = ARGV[quota + 4] + 0, y = ARGV[quota + 5] + 0, z = ARGV[quota + 6] + 0}
        part_of[key], parts[#parts + 1] = part, part
    end
    local limit, period = part.limit, part.period
    if not (part.algorithm and cost >= 0 and cost <= 4294967295 and cost % 1 == 0
            and limit >= 0 and limit <= 4294967295 and limit % 1 == 0
            and period >= 1 and period <= 315360000000000 and period % 1 == 0) then
        return redis.error_reply('STINT quota ' .. i .. ': expected algorithm cost limit period '
            .. 'x y z, cost and limit to 2^32-1, a period of 1 us to 10 years')
    end
    part.cost, part.times, costs[i] = part.cost + cost, part.times + 1, cost
    if part.cost > 4294967295 then too_much = true end
    if cost < most then most = cost end
end

local problem
-- The algorithm's decision on a part; nothing is written yet. The state is read once.
local function ask(part, asked, cost)
    if part.limit == 0 then
        local closed = cost > 0 and asked ~= 'refund'
        part.outcome, part.granted, part.capacity, part.remaining = closed and 2 or 0, 0, 0, 0
        part.retry, part.reset = closed and -1 or 0, 0
        return
    end
    if part.state == nil then part.state = call('GET', part.key) end
    local own_at, move = at, moves and moves[part.key]
    if move then asked, own_at, cost = move[1], move[2], move[3] end
    part.outcome, part.granted, part.capacity, part.remaining, part.retry, part.reset, part.after,
        part.expiry, part.stays, part.holder, part.holder_sub = part.algorithm(part.state, asked, cost, now,
        own_at, part.limit, part.period, part.x, part.y, part.z)
    if not part.outcome then
        problem = part.granted
    elseif move and asked == 'renew' and part.granted == 0 then
        problem = 'GONE the places that the ticket held are free'
    end
end
local function write()
    for _, part in ipairs(parts) do
        if part.after then
            if virtual then
                call('SET', part.key, part.after)
            elseif part.stays then
                call('SET', part.key, part.after, 'KEEPTTL')
            elseif part.expiry <= now then -- as if never used
                call('DEL', part.key)
            else
                call('SET', part.key, part.after, 'PXAT', math.ceil(part.expiry / 1000))
            end
        end
    end
end
local function sum(granted)
    local binding, retry = parts[1], 0
    for _, part in ipairs(parts) do
        if part.outcome > binding.outcome
                or (part.outcome == binding.outcome and has_less(part, binding)) then
            binding = part
        end
        if part.retry > retry then retry = part.retry end
    end
    if binding.outcome == 0 then
        retry = 0
    else
        granted = 0
    end
    if binding.outcome == 2 then retry = -1 end
    return {binding.outcome, granted or binding.granted, binding.capacity, binding.remaining, retry,
            binding.reset, binding.index, now}
end
-- After the sum: the state of each key, then the holders. `own`: what each item was granted; nil:
-- what its part was granted, as much as is left of it.
local function reply_of(reply, own)
    local refused, place = reply[1] ~= 0 and (verb == 'take' or verb == 'take_upto'), 8
    for _, part in ipairs(parts) do
        -- A take that failed because of others: the numbers are of a state that it did not change.
        if refused and part.outcome == 0 then ask(part, 'peek', 0) end
        part.left = refused and 0 or part.granted
    end
    for i = 1, #KEYS do
        local part = part_of[KEYS[i]]
        local granted = own or costs[i]
        if granted > part.left then granted = part.left end
        part.left = part.left - granted
        reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4], reply[place + 5],
            reply[place + 6] = part.outcome, granted, part.capacity, part.remaining, part.retry,
            part.reset
        place = place + 6
    end
    for _, part in ipairs(parts) do
        if part.holder and not refused then
            reply[place + 1], reply[place + 2] = part.holder, part.holder_sub
            place = place + 2
        end
    end
    return reply
end
local function is_allowed()
    for _, part in ipairs(parts) do
        if part.outcome ~= 0 then return false end
    end
    return true
end
-- Runs the verb on all with a cost of their own, or `each` unit of every item where that is given.
local function ask_all(asked, each)
    for _, part in ipairs(parts) do
        ask(part, asked, each and each * part.times or part.cost)
    end
end

if verb == 'reset' or too_much then
    for _, part in ipairs(parts) do
        part.outcome, part.granted, part.retry, part.reset = 2, 0, -1, 0
        part.capacity, part.remaining = 0, 0
        if verb == 'reset' then
            call('DEL', part.key)
            part.outcome, part.retry = 0, 0
            part.capacity = part.algorithm == gcra and part.x > 0 and part.x or part.limit
            part.remaining = part.capacity
        end
    end
    return reply_of(sum(), 0)
end
local least
if verb == 'charge' or verb == 'refund' or #KEYS == 1 then
    ask_all(verb)
    if not problem then
        for _, part in ipairs(parts) do
            if not least or part.granted < least then least = part.granted end
        end
        write()
    end
elseif verb == 'take_upto' then
    -- How often one unit of each item fits: what a peek leaves, and that one.
    ask_all('peek', most > 0 and 1 or 0)
    local each = most
    for _, part in ipairs(parts) do
        if not problem and most > 0 then
            local room = 0
            if part.outcome == 0 then room = math.floor(part.remaining / part.times) + 1 end
            if room < each then each = room end
        end
    end
    if each > 0 and not problem then
        ask_all('take', each)
        least = each
        if is_allowed() then write() end
    end
elseif #parts == 1 then
    ask_all(verb)
    if not problem then write() end
else
    ask_all('peek')
    if verb == 'take' and not problem and is_allowed() then
        ask_all('take')
        write()
    end
end
if problem then return redis.error_reply('STINT ' .. problem) end
return reply_of(sum(least), verb == 'take_upto' and least or nil)
