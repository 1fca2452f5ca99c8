-- SPDX-License-Identifier: MIT
--
-- HAProxy has no auth request of its own: this action asks stint's /auth, and leaves in variables
-- of the transaction what came of it.
--
--   txn.stint_status       status of the answer, 0 where there was none in time
--   txn.stint_policy       RateLimit-Policy
--   txn.stint_standing     RateLimit
--   txn.stint_retry_after  Retry-After
--
-- In haproxy.cfg, see there:
--   lua-load /etc/haproxy/stint.lua
--   http-request lua.stint http://127.0.0.1:8080/auth

local TIMEOUT_MS = 250

local function first(headers, name)
    local values = headers and headers[name]
    return values and values[0] or nil
end

local function leave(txn, name, value)
    if value then
        txn:set_var("txn.stint_" .. name, value)
    end
end

-- The client's fields go along, for descriptors of kind header:NAME. Those by which stint is told
-- of the client and its request are HAProxy's own.
local function fields_of(txn)
    local fields = {}
    for name, values in pairs(txn.http:req_get_headers()) do
        fields[name] = values
    end
    for _, name in ipairs({ "forwarded", "x-forwarded-uri", "x-forwarded-method", "content-length",
                            "transfer-encoding", "connection", "expect", "upgrade" }) do
        fields[name] = nil
    end
    local query = txn.f:query()
    local uri = txn.f:path() .. (query and query ~= "" and "?" .. query or "")
    fields["x-forwarded-for"] = { [0] = txn.f:src() }
    fields["x-original-uri"] = { [0] = uri }
    fields["x-original-method"] = { [0] = txn.f:method() }
    return fields
end

core.register_action("stint", { "http-req" }, function(txn, url)
    local answer = core.httpclient():get({ url = url, headers = fields_of(txn),
                                           timeout = TIMEOUT_MS })
    local status = answer and answer.status or 0
    txn:set_var("txn.stint_status", status)
    if status > 0 then
        leave(txn, "policy", first(answer.headers, "ratelimit-policy"))
        leave(txn, "standing", first(answer.headers, "ratelimit"))
        leave(txn, "retry_after", first(answer.headers, "retry-after"))
    end
end, 1)
