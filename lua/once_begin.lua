-- SPDX-License-Identifier: MIT
-- A decision with an id. Between here and once_end is all that the script without an id does. The
-- last key is the id's; the last two words are the body, 16 digits that stand for what is asked,
-- and how long the answer is kept, in ms. Kept are the body, whether units were taken (+) or given
-- back (-), and the reply, packed.
local id, body, lifetime = table.remove(KEYS), ARGV[#ARGV - 1], tonumber(ARGV[#ARGV])
table.remove(ARGV)
table.remove(ARGV)
if not (id and body and #body == 16 and lifetime and lifetime >= 1 and lifetime <= 9007199254740991
        and lifetime % 1 == 0) then
    return redis.error_reply('STINT expected the key of an id, and behind all other words: body '
        .. 'lifetime, 16 digits and 1 ms or more')
end
local undoes, gives_back = ARGV[1] == 'undo', ARGV[1] == 'refund' or ARGV[1] == 'release'
local first = call('GET', id)
if first then
    if first:sub(1, 16) ~= body then
        return redis.error_reply('STINT CONFLICT the id was used for another request')
    end
    local moved = first:sub(17, 17)
    first = cmsgpack.unpack(first:sub(18))
    if not undoes then
        first[1] = 4
        return first
    end
    if moved ~= '+' then first = nil end
end
-- What the id was charged is given back as it was charged: so much, at that time, these places.
local function undo_one()
    ARGV[1], ARGV[2] = 'refund', first and first[2] or 0
    if first then ARGV[4] = first[8] end
    if first and first[9] then ARGV[1], ARGV[2], ARGV[4] = 'release', first[10], first[9] end
end
local function undo_list()
    ARGV[1], ARGV[3] = 'refund', first and first[8] or 0
    local held, place = {}, 8 + 6 * #KEYS
    for i, key in ipairs(KEYS) do
        local granted = first and first[6 * i + 4] or 0
        ARGV[7 * i - 2] = granted
        if granted > 0 and ARGV[7 * i - 3] == 'concurrency' then held[key] = true end
    end
    for _, key in ipairs(KEYS) do
        if held[key] == true then
            held[key], place = {first[place + 1], first[place + 2]}, place + 2
        end
    end
    holders = held
end
if undoes then UNDO() end
local function decide()
