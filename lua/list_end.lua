-- SPDX-License-Identifier: MIT
local laws = {
    window = window, buckets = buckets, log = log, gcra = gcra, fixed_window = fixed_window,
    sliding_counter = sliding_counter, concurrency = concurrency,
}
local verbs = {take = 1, take_upto = 1, peek = 1, charge = 1, refund = 1, reset = 1}
local verb, now, at = ARGV[1], ARGV[2], tonumber(ARGV[3])
local virtual = now ~= '0'
if virtual then
    now = tonumber(now)
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local function is_whole(number, least, most)
    return number and number >= least and number <= most and number % 1 == 0
end
if not (verbs[verb] and is_whole(now, 0, 8000000000000000) and is_whole(at, -1, 9007199254740991)
        and #KEYS >= 1 and #KEYS <= 32 and #ARGV == 3 + 7 * #KEYS) then
    return redis.error_reply('STINT expected 1 to 32 keys, and: verb now at, and for each key '
        .. 'algorithm cost limit period x y z')
end

-- Equal keys are one part: their costs add up.
local parts, part_of, most, too_much = {}, {}, 4294967295, false
for i = 1, #KEYS do
    local quota = 7 * i - 3
    local part = part_of[KEYS[i]]
    local cost = tonumber(ARGV[quota + 1])
    if not part then
        part = {key = KEYS[i], index = i - 1, cost = 0, times = 0, quota = quota,
                law = laws[ARGV[quota]], limit = tonumber(ARGV[quota + 2]),
                period = tonumber(ARGV[quota + 3]), x = tonumber(ARGV[quota + 4]),
                y = tonumber(ARGV[quota + 5]), z = tonumber(ARGV[quota + 6])}
        part_of[part.key] = part
        parts[#parts + 1] = part
    end
    for word = 0, 6 do
        if word ~= 1 and ARGV[quota + word] ~= ARGV[part.quota + word] then
            return redis.error_reply('STINT the same key stands for two quotas')
        end
    end
    if not (part.law and is_whole(cost, 0, 4294967295) and is_whole(part.limit, 0, 4294967295)
            and is_whole(part.period, 1, 315360000000000) and part.x and part.y and part.z) then
        return redis.error_reply('STINT quota ' .. i .. ': expected algorithm cost limit period '
            .. 'x y z, cost and limit to 2^32-1, a period of 1 us to 10 years')
    end
    part.cost, part.times = part.cost + cost, part.times + 1
    if part.cost > 4294967295 then too_much = true end
    if cost < most then most = cost end
end

local problem
-- What the law says to a part; nothing is written yet. The state is read once.
local function ask(part, asked, cost)
    if part.limit == 0 then
        local closed = cost > 0 and asked ~= 'refund'
        part.outcome, part.granted, part.capacity, part.remaining = closed and 2 or 0, 0, 0, 0
        part.retry, part.reset = closed and -1 or 0, 0
        return
    end
    if part.state == nil then part.state = call('GET', part.key) end
    part.outcome, part.granted, part.capacity, part.remaining, part.retry, part.reset, part.after,
        part.dies, part.stays, part.holder, part.holder_sub = part.law(part.state, asked, cost, now,
        at, part.limit, part.period, part.x, part.y, part.z)
    if not part.outcome then problem = part.granted end
end
local function write()
    for _, part in ipairs(parts) do
        if part.after then
            if virtual then
                call('SET', part.key, part.after)
            elseif part.stays then
                call('SET', part.key, part.after, 'KEEPTTL')
            elseif part.dies <= now then -- as if never used
                call('DEL', part.key)
            else
                call('SET', part.key, part.after, 'PXAT', math.ceil(part.dies / 1000))
            end
        end
    end
end
-- Whether a has the smaller share of its capacity left. Each product is kept in two parts, because
-- it may have 64 bits: remaining * capacity = high * 2^16 + low, with high < 2^49.
local function has_less(a, b)
    local function product(units, times)
        local low = units % 65536 * times
        return (units - units % 65536) / 65536 * times + math.floor(low / 65536), low % 65536
    end
    local high, low = product(a.remaining, b.capacity > 0 and b.capacity or 1)
    local other_high, other_low = product(b.remaining, a.capacity > 0 and a.capacity or 1)
    return high < other_high or (high == other_high and low < other_low)
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
    local reply = {binding.outcome, granted or binding.granted, binding.capacity,
                   binding.remaining, retry, binding.reset, binding.index, now}
    for _, part in ipairs(parts) do
        if binding.outcome == 0 and part.holder then
            reply[#reply + 1], reply[#reply + 2] = part.holder, part.holder_sub
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
-- Asks all for a cost of their own, `each` unit of every item where that is given.
local function ask_all(asked, each)
    for _, part in ipairs(parts) do
        ask(part, asked, each and each * part.times or part.cost)
    end
end

if verb == 'reset' then
    for _, part in ipairs(parts) do call('DEL', part.key) end
    return {0, 0, parts[1].limit, parts[1].limit, 0, 0, 0, now}
end
if too_much then return {2, 0, 0, 0, -1, 0, 0, now} end
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
    -- How often one unit of each item fits: what a peek leaves, and itself.
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
return sum(least)
