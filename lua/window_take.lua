-- SPDX-License-Identifier: MIT
-- A take in the short form, of a state without a short bunch and without displaced ones. A store
-- has little else to do, so this way has few steps. window() decides the same: all other requests,
-- and bad words, are left to it.
if not ARGV[6] then
    local cost, limit, period, resolution = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] or '0'
    cost = cost == '1' and 1 or cost + 0
    resolution = resolution == '0' and 24 or resolution + 0
    if not KEYS[2] and cost > 0 and cost <= limit and limit <= 4294967295
            and period > 0 and period <= 315360000000000
            and cost % 1 + limit % 1 + period % 1 == 0
            and (resolution == 24
                or resolution >= 10 and resolution < 24 and resolution % 1 == 0) then
        local virtual = ARGV[5] and ARGV[5] ~= '0'
        if virtual then
            instant = ARGV[5] + 0
        else
            local time = call('TIME')
            instant = time[1] * 1000000 + time[2]
        end
        state = call('GET', KEYS[1])
        local since = instant % period
        local number, part = (instant - since) / period, since * resolution
        part = (part - part % period) / period
        local low, bunch = (number % 256 * resolution + part) % 256,
            (limit + -limit % resolution) / resolution
        local fits, n, rest, live, added, first, last = true, 0, 0, '', 0, 19, nil
        if virtual then
            fits = instant >= 0 and instant <= 8000000000000000 and instant % 1 == 0
        end
        if state then
            local version, was_limit, was_number, was_part, was_rest, place =
                unpack('>BI4I7BI4B', state)
            local gone = (number - was_number) * resolution + part - was_part
            fits = fits and version == 17 and was_limit == limit and place == 0 and gone >= 0
            if gone <= resolution then
                local size = #state
                while first <= size and (low - state:byte(first)) % 256 > resolution do
                    first = first + 1
                end
                if first <= size then
                    n, rest, last = size - first + 1, was_rest, state:byte(size)
                    if rest > 0 and last ~= low then -- the bunch in use moves to this slot
                        size, added = size - 1, 1
                    end
                    live = first <= size and state:sub(first, size) or ''
                end
            end
        end
        local left = limit - n * bunch + rest - cost
        if fits and left >= 0 then
            if cost > rest then
                local opened = cost - rest
                opened = (opened + -opened % bunch) / bunch
                n, rest, added = n + opened, rest + opened * bunch, added + opened
            end
            if n * bunch <= limit then
                local after
                if added == 1 and live == '' then
                    after = pack('>BI4I7BI4BB', 17, limit, number, part, rest - cost, 0, low)
                else
                    if added > 0 then live = live .. string.char(low):rep(added) end
                    after = pack('>BI4I7BI4B', 17, limit, number, part, rest - cost, 0) .. live
                end
                local into = (part + 1) * period
                local expiry = (number + 1) * period + (into + -into % resolution) / resolution
                if virtual then
                    call('SET', KEYS[1], after)
                elseif last == low then
                    call('SET', KEYS[1], after, 'KEEPTTL')
                else
                    call('SET', KEYS[1], after, 'PXAT',
                        string.format('%d', (expiry + -expiry % 1000) / 1000))
                end
                return {0, cost, limit, left, 0, expiry - instant, 0, instant}
            end
        elseif fits then
            -- How long until a bunch of a slot comes back.
            local function wait(slot)
                local back_number, back_part = number, part - (low - slot) % 256
                if back_part < 0 then
                    back_number, back_part = number - 1, back_part + resolution
                end
                local into = (back_part + 1) * period
                return (back_number + 1) * period + (into + -into % resolution) / resolution
                    - instant
            end
            local missing = (-left + left % bunch) / bunch -- bunches
            local oldest = missing < n and state:byte(first + missing - 1) or last
            return {1, 0, limit, left + cost, wait(oldest), wait(last), 0, instant}
        end
    end
end
