-- SPDX-License-Identifier: MIT
-- The content of a pool's hash, and the decision of one key.
--
-- Fields: '#', the turn that is next, in digits; '^', when the hash expires, '>I7'; '!NAME', a
-- cooldown; 'ALGORITHM,LIMIT,PERIOD,X,Y,Z NAME', a state under a quota. Cooldowns and states begin
-- with '>I7', the us at which they expire. A state is followed by what the algorithm packs; a
-- cooldown by '>I7I7B': its end, its length, failures in turn; 31 failures: out until reported OK.
local FOREVER, OUT = 9007199254740991, 31
local algorithms = {
    window = window, buckets = buckets, log = log, gcra = gcra, fixed_window = fixed_window,
    sliding_counter = sliding_counter,
}
local verb, now, cost, at = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local order, virtual = ARGV[5], ARGV[2] ~= '0'
if virtual then
    now = now + 0
else
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end
local problem
if not (#KEYS == 1 and now >= 0 and now <= 8000000000000000 and now % 1 == 0
        and cost >= 0 and cost <= 4294967295 and cost % 1 == 0
        and at >= -1 and at <= FOREVER and at % 1 == 0) then
    problem = 'expected one key, and: verb now cost at order probe weights groups_of groups, '
        .. 'quotas, names; cost to 2^32-1, times in us'
end

-- Groups of keys with the same quotas. The words after them are names.
local groups, before = {}, 9
for g = 1, ARGV[9] + 0 do
    local group, quotas = {}, ARGV[before + 1] + 0
    before = before + 1
    for q = 1, quotas do
        local quota = {algorithm = algorithms[ARGV[before + 1]], limit = ARGV[before + 2] + 0,
                       period = ARGV[before + 3] + 0, x = ARGV[before + 4] + 0,
                       y = ARGV[before + 5] + 0, z = ARGV[before + 6] + 0,
                       field = table.concat(ARGV, ',', before + 1, before + 6) .. ' '}
        if not (quota.algorithm and quota.limit >= 0 and quota.limit <= 4294967295
                and quota.limit % 1 == 0 and quota.period >= 1
                and quota.period <= 315360000000000 and quota.period % 1 == 0) then
            problem = problem or 'quota ' .. q .. ' of group ' .. g .. ': expected algorithm limit '
                .. 'period x y z, limit to 2^32-1, a period of 1 us to 10 years'
        end
        group[q], before = quota, before + 6
    end
    groups[g] = group
end
local n_keys = #ARGV - before
-- A number for each key, separated by commas; nil if the word is empty: all are 1.
local function numbers(word, most)
    if word == '' then return nil end
    local found = {}
    for digits in word:gmatch('%d+') do
        local number = digits + 0
        if number < 1 or number > most then problem = problem or 'a number is out of range' end
        found[#found + 1] = number
    end
    if #found ~= n_keys then problem = problem or 'expected as many numbers as names' end
    return found
end
local weights, group_of = numbers(ARGV[7], 1000), numbers(ARGV[8], #groups)
if n_keys > 0 and #groups == 0 then problem = problem or 'expected a group' end
if problem then return redis.error_reply('STINT ' .. problem) end

-- ---- Keys, read in pieces ----------------------------------------------------------------------

local keys, piece = {}, 1
local function bench_of(key, value)
    local expiry, ends, length, failures = 0, 0, 0, 0
    if value then expiry, ends, length, failures = unpack('>I7I7I7B', value) end
    if expiry <= now then ends, length, failures = 0, 0, 0 end
    key.ends, key.length, key.failures = ends, length, failures
end
-- Most often the first key that is tried serves; else many are read.
local function key_at(i)
    if keys[i] then return keys[i] end
    local fields, last = {}, i + piece - 1
    if last > n_keys then last = n_keys end
    for k = i, last do
        local name = ARGV[before + k]
        local key = {name = name, group = groups[group_of and group_of[k] or 1], states = {}}
        fields[#fields + 1] = '!' .. name
        for _, quota in ipairs(key.group) do fields[#fields + 1] = quota.field .. name end
        keys[k] = key
    end
    piece = 32
    local values, place = call('HMGET', KEYS[1], list_of(fields)), 0
    for k = i, last do
        local key = keys[k]
        bench_of(key, values[place + 1])
        for q = 1, #key.group do
            local value = values[place + 1 + q]
            key.states[q] = value and value:sub(8)
        end
        place = place + 1 + #key.group
    end
    return keys[i]
end

-- ---- What is written, at the end ---------------------------------------------------------------

local meta = call('HMGET', KEYS[1], '#', '^')
local turn_seen, expires = meta[1] and meta[1] + 0 or 0, meta[2] and unpack('>I7', meta[2]) or 0
local writes, latest, looks_again = {}, 0, false
local function put(field, value, expiry)
    if value then
        writes[#writes + 1], writes[#writes + 2] = field, expiry and pack('>I7', expiry) .. value
            or value
        if expiry and expiry > latest then latest = expiry end
    else
        call('HDEL', KEYS[1], field)
    end
end
-- Removes expired fields, and makes the hash expire later than all others.
local function sweep()
    local all, last = call('HGETALL', KEYS[1]), now
    for i = 1, #all, 2 do
        if all[i] ~= '#' and all[i] ~= '^' then
            local expiry = unpack('>I7', all[i + 1])
            if expiry <= now then call('HDEL', KEYS[1], all[i]) end
            if expiry > last then last = expiry end
        end
    end
    if last == FOREVER then
        call('PERSIST', KEYS[1])
    else -- twice the time, so that this is seldom
        last = last + math.max(last - now, 1000000)
        call('PEXPIREAT', KEYS[1], (last + -last % 1000) / 1000)
    end
    call('HSET', KEYS[1], '^', pack('>I7', last))
end
local function write()
    if #writes > 0 then call('HSET', KEYS[1], list_of(writes)) end
    if not virtual and (latest > expires or looks_again) then sweep() end
end

-- ---- The decision of a key: all of its quotas, or none -----------------------------------------

local function ask_quota(key, q, asked, units)
    local quota, told = key.group[q], {index = q - 1}
    if quota.limit == 0 then
        local closed = units > 0 and asked ~= 'refund'
        told.outcome, told.granted, told.capacity, told.remaining = closed and 2 or 0, 0, 0, 0
        told.retry, told.reset = closed and -1 or 0, 0
        return told
    end
    local after, expiry
    told.outcome, told.granted, told.capacity, told.remaining, told.retry, told.reset, after, expiry =
        quota.algorithm(key.states[q], asked, units, now, at, quota.limit, quota.period, quota.x, quota.y,
                  quota.z)
    if not told.outcome then
        problem = told.granted
        told.outcome, told.granted, told.capacity, told.remaining = 2, 0, 0, 0
        told.retry, told.reset = -1, 0
    elseif after and asked ~= 'peek' then
        key.states[q] = after
        put(quota.field .. key.name, after, expiry > 0 and expiry or 0)
    end
    return told
end
local function ask_key(key, asked, units)
    if asked == 'take' and #key.group > 1 then
        local seen = ask_key(key, 'peek', units)
        if seen.outcome ~= 0 then return seen end
    end
    local binding, least, retry
    for q = 1, #key.group do
        local told = ask_quota(key, q, asked, units)
        if not binding or told.outcome > binding.outcome
                or (told.outcome == binding.outcome and has_less(told, binding)) then
            binding = told
        end
        if not retry or told.retry > retry then retry = told.retry end
        if not least or told.granted < least then least = told.granted end
    end
    if asked == 'refund' then binding.granted = least end
    if binding.outcome == 1 then binding.retry = retry end
    if binding.outcome ~= 0 then binding.granted = 0 end
    return binding
end
local function six(told)
    return told.outcome, told.granted, told.capacity, told.remaining, told.retry, told.reset
end
