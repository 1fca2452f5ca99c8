-- SPDX-License-Identifier: MIT
--
-- Asks stint's /auth for each request, and answers 429 with stint's fields where it is denied.
-- Without an answer in time requests pass.

require "apache2"
local http = require "socket.http"

local URL = "http://127.0.0.1:8080/auth"
http.TIMEOUT = 0.25

local FIELDS = { ["ratelimit-policy"] = "RateLimit-Policy", ["ratelimit"] = "RateLimit",
                 ["retry-after"] = "Retry-After" }

function ask_stint(r)
    if not r.is_initial_req then
        return apache2.DECLINED
    end
    local _, status, fields = http.request({
        url = URL,
        headers = { ["X-Forwarded-For"] = r.useragent_ip, ["X-Original-URI"] = r.unparsed_uri,
                    ["X-Original-Method"] = r.method },
    })
    if type(status) ~= "number" then
        return apache2.DECLINED
    end
    for lower, name in pairs(FIELDS) do
        if fields[lower] then
            r.err_headers_out[name] = fields[lower]
        end
    end
    return status == 429 and 429 or apache2.DECLINED
end
