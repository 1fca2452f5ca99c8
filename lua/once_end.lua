-- SPDX-License-Identifier: MIT
end
local reply = decide()
if reply.err then return reply end
local function keep(what, ms)
    if virtual then
        call('SET', id, what)
    else
        call('SET', id, what, 'PX', ms)
    end
end
local function ms_until(us) return math.max(math.ceil((us - clock()) / 1000), 1) end
-- Whether the ticket held only concurrency units, which were free before.
local function was_free()
    local each = {{ARGV[1], first and first[2] or 0, reply[2]}}
    for i = 1, EACH / 6 do
        each[i] = {moves[KEYS[i]][1], first and first[6 * i + 4] or 0, reply[6 * i + 4]}
    end
    for _, one in ipairs(each) do
        local move, had, back = one[1], one[2], one[3]
        if move ~= 'release' or had == 0 or back > 0 then return false end
    end
    return true
end
if closes and asked ~= 'undo' and was_free() then
    return redis.error_reply('STINT GONE the places that the ticket held are free')
end
if closes then
    if first and (kind == 'T' or kind == 'B') and asked ~= 'undo' then
        local over = stored:sub(1, 16) .. '.' .. stored:sub(18)
        if virtual then
            call('SET', id, over)
        else
            call('SET', id, over, 'KEEPTTL')
        end
    elseif first then
        call('DEL', id)
    end
elseif extends then
    if ARGV[1] == 'renew' and reply[2] == 0 then
        return redis.error_reply('STINT GONE the places that the ticket held are free')
    end
    for place = 9 + EACH, #reply do first[place] = reply[place] end
    good_until = math.max(good_until, clock() + good)
    local ms = ms_until(good_until + longer)
    if kind ~= kind:lower() and not virtual then ms = math.max(ms, call('PTTL', id)) end
    keep(body .. kind .. pack('>I7', good_until) .. cmsgpack.pack(first), ms)
elseif reply[1] == 0 and issues then
    local left = issues == 'b' and reply[5] or good
    good_until = reply[8] + left
    if lifetime > 0 then issues = issues:upper() end
    if left > 0 or lifetime > 0 then
        keep(body .. issues .. pack('>I7', good_until) .. cmsgpack.pack(reply),
            math.max(ms_until(good_until + longer), lifetime))
    end
elseif reply[1] == 0 and ARGV[1] ~= 'peek' then
    keep(body .. (gives_back and '-' or '+') .. cmsgpack.pack(reply), lifetime)
end
return reply
