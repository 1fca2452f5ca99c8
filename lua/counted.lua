-- SPDX-License-Identifier: MIT
-- All but refunds of the algorithms that count the units in use, of `used` before the request.
-- add(units) counts more, deny(cost) answers when they fit, answer(outcome, granted, retry) else.
local function counted(verb, cost, used, limit, count_denied, add, deny, answer)
    local free = limit > used and limit - used or 0
    local debt = 2 * limit > used and 2 * limit - used or 0
    if debt > cost then debt = cost end
    local in_debt = used > limit -- then a cost of 0 is denied, too
    if verb == 'book' or verb == 'unbook' then return 2, 0, limit, 0, -1, 0 end
    if verb == 'charge' then
        add(debt)
        return answer(0, debt, 0)
    elseif verb == 'take_upto' then
        if in_debt or (cost > 0 and free == 0) then return deny(cost > 0 and 1 or 0) end
        if cost > free then cost = free end
    elseif cost > limit then
        return answer(2, 0, -1)
    elseif cost > free or in_debt then
        if count_denied == 1 and verb == 'take' then add(debt) end
        return deny(cost)
    end
    add(cost)
    return answer(0, cost, 0)
end
