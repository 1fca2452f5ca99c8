-- SPDX-License-Identifier: MIT
end
local reply = decide()
if reply.err then return reply end
if undoes then
    if first then call('DEL', id) end
elseif reply[1] == 0 and ARGV[1] ~= 'peek' then
    local kept = body .. (gives_back and '-' or '+') .. cmsgpack.pack(reply)
    if ARGV[NOW] == '0' then
        call('SET', id, kept, 'PX', lifetime)
    else
        call('SET', id, kept)
    end
end
return reply
