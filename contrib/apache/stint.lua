-- SPDX-License-Identifier: MIT
--
-- Asks stint's /auth for each request. Only 2xx lets it pass; a denial is answered with 429 and
-- stint's fields, a request that is too long for stint with 414, and everything else with 503.

require "apache2"
local http = require "socket.http"

-- Servers of stint. The next one is asked where one does not answer; none is marked as failed.
local SERVERS = { "http://127.0.0.1:8080" }
http.TIMEOUT = 0.25

-- Fail open: with true, requests pass while stint is unreachable, late or answers 5xx.
local FAIL_OPEN = false

-- Fields of the client that go along. A descriptor header:x-api-key needs { "X-Api-Key" } here.
local CLIENT_FIELDS = {}

-- The most bytes of what stint is sent: it reads 8 KiB (http_header_size).
local SENT_MAX = 6144

local ANSWER_FIELDS = { ["ratelimit-policy"] = "RateLimit-Policy", ["ratelimit"] = "RateLimit",
                        ["retry-after"] = "Retry-After" }

-- Only these fields go to stint, and no body. The second value is their length.
local function fields_of(r)
    local sent = { ["X-Forwarded-For"] = r.useragent_ip, ["X-Forwarded-Host"] = r.hostname,
                   ["X-Original-URI"] = r.unparsed_uri, ["X-Original-Method"] = r.method }
    for _, name in ipairs(CLIENT_FIELDS) do
        sent[name] = r.headers_in[name]
    end
    local length = 0
    for _, value in pairs(sent) do
        length = length + #value
    end
    return sent, length
end

-- Status and fields of the first answer; 0: there was none. The status is read from its line, as
-- LuaSocket takes "2000" for 200.
local function ask(sent)
    for _, server in ipairs(SERVERS) do
        local done, _, fields, line = http.request({ url = server .. "/auth", headers = sent,
                                                     redirect = false })
        local status = done and (line .. " "):match("^HTTP/1%.[01] (%d%d%d) ")
        if status then
            return tonumber(status), fields
        end
    end
    return 0, {}
end

function ask_stint(r)
    if not r.is_initial_req then
        return apache2.DECLINED
    end
    local sent, length = fields_of(r)
    if length > SENT_MAX then
        return 414
    end
    local status, fields = ask(sent)
    local is_allowed = status >= 200 and status <= 299
    if is_allowed or status == 429 then
        for lower, name in pairs(ANSWER_FIELDS) do
            if fields[lower] then
                r.err_headers_out[name] = fields[lower]
            end
        end
    end
    local is_unavailable = status == 0 or status >= 500
    if is_allowed or (is_unavailable and FAIL_OPEN) then
        return apache2.DECLINED
    end
    return status == 429 and 429 or 503
end
