-- SPDX-License-Identifier: MIT
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
