-- SPDX-License-Identifier: MIT
--
-- HAProxy has no auth request of its own: this action asks stint's /auth, and leaves the result in
-- variables of the transaction. Requests pass on "allowed" alone (see haproxy.cfg): after an error in
-- here the variables are not set.
--
--   txn.stint_outcome      "allowed" (2xx), "denied" (429), "unavailable" (no answer in time, or
--                          5xx), "too_long" (stint was not asked), or "refused" (anything else)
--   txn.stint_policy       RateLimit-Policy
--   txn.stint_standing     RateLimit
--   txn.stint_retry_after  Retry-After
--
-- In haproxy.cfg, see there:
--   lua-load /etc/haproxy/stint.lua
--   http-request lua.stint http://127.0.0.1:8079/auth

local TIMEOUT_MS = 250

-- Fields of the client that go along, in small letters. A descriptor header:x-api-key needs
-- { "x-api-key" } here.
local CLIENT_FIELDS = {}

-- The most bytes of what stint is sent: it reads 8 KiB (http_header_size).
local SENT_MAX = 6144

local function first(headers, name)
    local values = headers and headers[name]
    return values and values[0] or nil
end

-- Only these fields go to stint, and no body. The second value is their length.
local function fields_of(txn)
    local sent = {
        ["x-forwarded-for"] = txn.f:src(),
        ["x-forwarded-host"] = txn.f:req_fhdr("host"),
        ["x-original-uri"] = txn.f:url(),
        ["x-original-method"] = txn.f:method(),
    }
    local received = txn.http:req_get_headers()
    for _, name in ipairs(CLIENT_FIELDS) do
        local values = received[name]
        if values then
            sent[name] = table.concat(values, ", ", 0)
        end
    end
    local fields, length = {}, 0
    for name, value in pairs(sent) do
        fields[name] = { [0] = value }
        length = length + #value
    end
    return fields, length
end

local function outcome_of(status)
    if status >= 200 and status <= 299 then
        return "allowed"
    elseif status == 429 then
        return "denied"
    elseif status == 0 or status >= 500 then
        return "unavailable"
    end
    return "refused"
end

core.register_action("stint", { "http-req" }, function(txn, url)
    local fields, length = fields_of(txn)
    if length > SENT_MAX then
        txn:set_var("txn.stint_outcome", "too_long")
        return
    end
    local answer = core.httpclient():get({ url = url, headers = fields, timeout = TIMEOUT_MS })
    local outcome = outcome_of(answer and answer.status or 0)
    if outcome == "allowed" or outcome == "denied" then
        for name, field in pairs({ policy = "ratelimit-policy", standing = "ratelimit",
                                   retry_after = "retry-after" }) do
            local value = first(answer.headers, field)
            if value then
                txn:set_var("txn.stint_" .. name, value)
            end
        end
    end
    txn:set_var("txn.stint_outcome", outcome)
end, 1)
