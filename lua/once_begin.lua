-- SPDX-License-Identifier: MIT
-- A decision with an id. The script without an id runs between here and once_end. The last key is
-- the id's; the last words are the body, 16 digits that identify the request, and how long the
-- answer is kept, in ms. A ticket is an id as well: `reserve` takes and `book` books under it, and
-- `settle`, `cancel` and `extend` act once on what was charged so. Of reserve, book and extend the
-- last word is how long the ticket is valid, in us; a reserve or a book whose answer is kept for
-- 0 ms has an id for its ticket only. After a '+' follows how many us longer the ticket's record is
-- kept: in that time `expire` closes it, and what was used counts at most as COST.
--
-- Kept are the body; a letter; of a ticket '>I7', when it ends; and the reply, packed. Units were
-- taken (+), given back (-), or belong to a ticket (t), perhaps booked (b); T and B if the answer
-- is kept for its id too. Such a ticket that was used is a point.
local id, asked = table.remove(KEYS), ARGV[1]
local issues = asked == 'reserve' and 't' or asked == 'book' and 'b'
local expires, extends = asked == 'expire', asked == 'extend'
local closes = asked == 'settle' or asked == 'cancel' or asked == 'undo' or expires
local good, longer = 0, 0
if issues or extends then
    local word = table.remove(ARGV) or ''
    local first, second = word:match('^(%d+)%+(%d+)$')
    good, longer = tonumber(first or word) or -1, tonumber(second or '0')
end
local lifetime, body = tonumber(table.remove(ARGV) or ''), table.remove(ARGV)
if not (id and body and #body == 16 and lifetime and lifetime <= 9007199254740991
        and lifetime % 1 == 0 and (lifetime >= 1 or lifetime == 0 and (issues or extends or closes))
        and good >= 0 and good <= 9007199254740991 and good % 1 == 0
        and longer <= 9007199254740991) then
    return redis.error_reply('STINT expected the key of an id, and behind all other words: body '
        .. 'lifetime, 16 digits and 1 ms or more, and of reserve, book and extend how many us the '
        .. 'ticket is good')
end
local virtual = ARGV[NOW] ~= '0'
local function clock()
    if virtual then return ARGV[NOW] + 0 end
    local time = call('TIME')
    return time[1] * 1000000 + time[2]
end
local stored, kind, good_until, first = call('GET', id), '', 0, nil
if stored then
    if stored:sub(1, 16) ~= body then
        return redis.error_reply('STINT CONFLICT the id was used for another request')
    end
    kind = stored:sub(17, 17)
    local is_ticket = kind:find('[tTbB.]')
    if is_ticket then good_until = unpack('>I7', stored, 18) end
    first = cmsgpack.unpack(stored:sub(is_ticket and 25 or 18))
end
if expires then
    if not kind:find('[tT]') then
        return redis.error_reply('STINT GONE the ticket was used, has ended, or never was')
    end
    local left = good_until - clock()
    if left > 0 then -- it is good still
        first[1], first[2], first[5] = 1, 0, left
        return first
    end
elseif (closes or extends) and asked ~= 'undo' then
    if not (kind:find('[tTbB]') and clock() < good_until) then
        return redis.error_reply('STINT GONE the ticket was used, has ended, or never was')
    end
elseif not closes then
    if first then
        first[1] = 4
        return first
    end
elseif kind == '-' or kind == '.' then
    first = nil
end
-- The request to an algorithm about `units` that were charged under the id, or about their holder:
-- verb, at, cost. What is closed goes back as it was charged; units used in excess are charged now.
local function move(units, used, has_places, holder, holder_sub)
    if expires then -- concurrency units are free when their lease ends
        if has_places then return 'peek', 0, 0 end
        return 'refund', first[8], units - math.min(used, units)
    end
    if has_places and (holder or extends) then -- without units there is no holder
        return extends and 'renew' or 'release', holder or 0, holder_sub or 0
    end
    if extends or has_places then return 'peek', 0, 0 end
    if not first then return 'refund', 0, 0 end
    local booked = kind == 'b' or kind == 'B'
    local from = booked and first[8] + first[5] or first[8]
    if asked ~= 'settle' then return booked and 'unbook' or 'refund', from, units end
    if used > units then return 'charge', 0, used - units end
    return 'refund', from, units - used
end
local function move_one()
    ARGV[1], ARGV[4], ARGV[2] =
        move(first and first[2] or 0, ARGV[2] + 0, PLACES, first and first[9], first and first[10])
end
-- Equal keys are one part, with what all of them were granted.
local function move_list()
    local granted, used, place = {}, {}, 8 + 6 * #KEYS
    ARGV[1], ARGV[3], moves = 'refund', 0, {}
    for i, key in ipairs(KEYS) do
        local had, now_used = first and first[6 * i + 4] or 0, ARGV[7 * i - 2] + 0
        if expires and now_used > had then now_used = had end
        granted[key] = (granted[key] or 0) + had
        used[key] = math.min((used[key] or 0) + now_used, 4294967295)
        ARGV[7 * i - 2] = had
    end
    for i, key in ipairs(KEYS) do
        if not moves[key] then
            local holder, holder_sub
            local has_places = ARGV[7 * i - 3] == 'concurrency'
            if granted[key] > 0 and has_places then
                holder, holder_sub, place = first[place + 1], first[place + 2], place + 2
            end
            moves[key] = {move(granted[key], used[key], has_places, holder, holder_sub)}
        end
    end
end
if closes or extends then MOVE() end
if asked == 'reserve' then ARGV[1] = 'take' end
local gives_back = asked == 'refund' or asked == 'release'
local function decide()
