-- Looked up once in each call: a global costs more with each use.
local call, pack, unpack, ceil = redis.call, struct.pack, struct.unpack, math.ceil
