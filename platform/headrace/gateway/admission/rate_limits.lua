-- One organization's minute limits: requests, tokens and requests under way.
-- KEYS: 1 zset request id -> ms of admission; 2 hash request id -> tokens, with the field 'sum';
--       3 zset request id -> ms at which its place lapses.
-- All three carry the organization in a hash tag, so that a cluster keeps them together.
local WINDOW_MS = 60000
local TTL_MS = 180000
local action = ARGV[1]
local id = ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function forget(member)
  local tokens = tonumber(redis.call('HGET', KEYS[2], member) or '0')
  redis.call('ZREM', KEYS[1], member)
  redis.call('HDEL', KEYS[2], member)
  if tokens ~= 0 then redis.call('HINCRBY', KEYS[2], 'sum', -tokens) end
end

for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - WINDOW_MS)) do
  forget(member)
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)

if action == 'release' then -- the request was never served: give everything back
  forget(id)
  redis.call('ZREM', KEYS[3], id)
  return {1}
end

if action == 'reconcile' then -- it ended: count what it used instead of what it reserved
  local used = tonumber(ARGV[3])
  local reserved = tonumber(redis.call('HGET', KEYS[2], id) or '-1')
  if reserved >= 0 then
    redis.call('HSET', KEYS[2], id, used)
    redis.call('HINCRBY', KEYS[2], 'sum', used - reserved)
  end
  redis.call('ZREM', KEYS[3], id)
  return {1}
end

if action == 'renew' then -- still under way
  redis.call('ZADD', KEYS[3], 'XX', now + tonumber(ARGV[3]), id)
  redis.call('PEXPIRE', KEYS[3], TTL_MS)
  return {1}
end

forget(id) -- a reservation made before its tokens were counted
redis.call('ZREM', KEYS[3], id)

local tokens, requests_max, tokens_max, live_max, lease_ms =
  tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local requests = redis.call('ZCARD', KEYS[1])
local sum = tonumber(redis.call('HGET', KEYS[2], 'sum') or '0')

-- Milliseconds until `enough` holds, as the oldest admissions leave the window one after another.
local function wait_until(enough)
  local freed_requests, freed_tokens = 0, 0
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 4095, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    freed_requests = freed_requests + 1
    freed_tokens = freed_tokens + tonumber(redis.call('HGET', KEYS[2], oldest[i]) or '0')
    if enough(freed_requests, freed_tokens) then
      return math.max(1, tonumber(oldest[i + 1]) + WINDOW_MS - now)
    end
  end
  return WINDOW_MS
end

local refused = ''
local wait_ms = 0
if requests + 1 > requests_max then
  refused = 'requests'
  wait_ms = wait_until(function(r, _) return requests - r + 1 <= requests_max end)
elseif sum + tokens > tokens_max then
  refused = 'tokens'
  wait_ms = wait_until(function(_, t) return sum - t + tokens <= tokens_max end)
elseif redis.call('ZCARD', KEYS[3]) + 1 > live_max then
  refused = 'concurrency'
  wait_ms = 1000
else
  redis.call('ZADD', KEYS[1], now, id)
  redis.call('HSET', KEYS[2], id, tokens)
  sum = redis.call('HINCRBY', KEYS[2], 'sum', tokens)
  requests = requests + 1
  redis.call('ZADD', KEYS[3], now + lease_ms, id)
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], TTL_MS) end
end
return {
  refused, wait_ms, math.max(0, requests_max - requests), math.max(0, tokens_max - sum),
  requests > 0 and wait_until(function(r, _) return r >= requests end) or 0,
}
