-- SPDX-License-Identifier: MIT
-- Which key may be used now, or when: src/limiter/pool_next.c with a state for each key. Choosing
-- is trying: keys are tried in the pool's order; the first that is charged is the answer.
local found, told, wait, serves_later, nearest
local function keep_wait(length, seen)
    if wait and length >= wait then return end
    wait, told = length, seen
end
local function try(i)
    local key = key_at(i)
    if key.ends > now then -- it is not charged, but may be the first to be back
        if key.ends == FOREVER then return false end
        local seen = ask_key(key, 'peek', cost)
        if seen.outcome == 2 then return false end
        keep_wait(math.max(seen.retry, key.ends - now), seen)
        if seen.outcome == 0 and (not nearest or key.ends < key_at(nearest).ends) then
            nearest = i
        end
        return false
    end
    local taken = ask_key(key, 'take', cost)
    if taken.outcome == 0 then
        found, told = i, taken
        return true
    end
    if taken.outcome == 1 then
        serves_later = true
        keep_wait(taken.retry, taken)
    end
    return false
end
-- Of keys from + 1 to to; how many were passed over before the one that serves.
local function try_from(from, to)
    for passed = from, to - 1 do
        if try(passed + 1) then return passed end
    end
end
-- The position of a turn of a round: how many keys its pass has and the next one, how many turns
-- are before the pass, and its index in it. Names come with the heaviest key first.
local function pass_of(turn)
    local before_it, done = 0, 0
    for i = n_keys, 1, -1 do
        local weight = weights and weights[i] or 1
        local turns = (weight - done) * i
        if turn < before_it + turns then
            local place = (turn - before_it) % i
            local pass = done + (turn - before_it - place) / i + 1
            local following = i
            if pass == weight then
                while following > 0 and (weights and weights[following] or 1) <= weight do
                    following = following - 1
                end
            end
            return i, following, turn - place, place
        end
        if turns > 0 then before_it, done = before_it + turns, weight end
    end
end
local function choose_by_turns()
    local turns = n_keys
    if weights then
        turns = 0
        for i = 1, n_keys do turns = turns + weights[i] end
    end
    local size, following, base, begin = pass_of(turn_seen % turns)
    local passed, after = try_from(begin, size), 0
    if passed then
        after = base + passed + 1
    else
        -- Then keys of the next pass that were not tried yet; as the next round begins, the rest.
        local next_to = math.min(begin, following)
        passed = try_from(0, next_to)
        if passed then
            after = base + size + passed + 1
        else
            passed = try_from(next_to, begin) or try_from(size, n_keys)
            after = (passed or 0) + 1
        end
    end
    if passed and cost > 0 then put('#', after % turns .. '') end
end
local function choose_first()
    try_from(0, n_keys)
end
-- floor(used * 2^32 / limit), by two digits of 16 bits.
local function used_share(seen)
    local capacity = seen.capacity > 0 and seen.capacity or 1
    local left = math.min(seen.remaining + cost, seen.capacity)
    local high = (seen.capacity - left) * 65536
    local rest = high % capacity * 65536
    return (high - high % capacity) / capacity * 65536 + (rest - rest % capacity) / capacity
end
local function choose_least_used()
    local best, best_share, best_weight
    for i = 1, n_keys do
        local key, weight = key_at(i), weights and weights[i] or 1
        local seen = ask_key(key, 'peek', cost)
        if seen.outcome == 0 and key.ends <= now then
            local share = used_share(seen)
            if not best or share * best_weight < best_share * weight then
                best, best_share, best_weight = i, share, weight
            end
        end
    end
    if not best or not try(best) then choose_first() end
end
local function next_key()
    local is_probe = 0
    if n_keys > 0 then
        if order == '0' then
            choose_by_turns()
        elseif order == '1' then
            choose_first()
        else
            choose_least_used()
        end
    end
    if not found and ARGV[6] == '1' and not serves_later and nearest then
        local taken = ask_key(key_at(nearest), 'take', cost)
        if taken.outcome == 0 then found, told, is_probe = nearest, taken, 1 end
    end
    if found then return {found - 1, 0, now, is_probe, told.index, six(told)} end
    if not wait then return {-1, -1, now, 0, 0, 2, 0, 0, 0, -1, 0} end
    return {-1, wait, now, 0, told.index, 1, 0, told.capacity, told.remaining, wait, told.reset}
end

-- ---- Reports, status ---------------------------------------------------------------------------

local function back_off(failures) -- 1 s, 2 s, 4 s, … 1 h
    return failures == 0 and 0 or failures > 12 and 3600000000 or 1000000 * 2 ^ (failures - 1)
end
local function bench(key, ends, length, failures)
    put('!' .. key.name, pack('>I7I7B', ends, length, failures), ends + back_off(failures))
end
-- cost: enum stint_pool_outcome; at: the cooldown. After after_report() of limiter/pool_cooldown.c.
local function report(key)
    local cools = key.ends > now
    if cost == 0 then
        put('!' .. key.name)
        looks_again = key.ends == FOREVER
    elseif cost == 3 then
        put('!' .. key.name, pack('>I7I7B', FOREVER, 0, OUT), FOREVER)
    elseif key.ends == FOREVER then
        return
    elseif cost == 1 then
        if not cools or at > key.length then
            bench(key, math.max(now + at, key.ends), at, key.failures)
        end
    elseif not cools then
        local failures = math.min(key.failures + 1, OUT - 1)
        bench(key, now + back_off(failures), back_off(failures), failures)
    end
end
local function standing_of(key)
    if key.ends == FOREVER then return 4 end
    if key.ends <= now then return 0 end
    return key.failures > 0 and key.length == back_off(key.failures) and 3 or 2
end
local function status()
    local reply = {}
    for i = 1, n_keys do
        local key = key_at(i)
        local one, none = ask_key(key, 'peek', 1), ask_key(key, 'peek', 0)
        local standing, returns = standing_of(key), one.retry
        if standing == 0 and returns ~= 0 then standing = 1 end
        if standing == 4 then
            returns = -1
        elseif standing > 1 and returns >= 0 then
            returns = math.max(returns, key.ends - now)
        end
        local failures = key.ends < FOREVER and key.failures or 0
        for _, number in ipairs({standing, failures, returns, one.outcome, none.capacity,
                                 none.remaining, one.retry, none.reset}) do
            reply[#reply + 1] = number
        end
    end
    return reply
end

local reply
if verb == 'next' and (order == '0' or order == '1' or order == '2') then
    reply = next_key()
elseif verb == 'status' then
    reply = status()
elseif verb == 'give_back' and n_keys == 1 then
    reply = {ask_key(key_at(1), 'refund', cost).granted}
elseif verb == 'report' and n_keys == 1 and cost <= 3 and (at == 0) == (cost ~= 1)
        and at <= 31536000000000 then
    report(key_at(1))
    reply = {0}
elseif verb == 'let_in' and n_keys == 1 then
    cost = 0
    if key_at(1).ends == FOREVER then report(key_at(1)) end
    reply = {0}
else
    problem = 'expected next with order 0 to 2 or status, or with one name: give_back, report with '
        .. 'outcome and cooldown, let_in'
end
if problem then return redis.error_reply('STINT ' .. problem) end
write()
return reply
