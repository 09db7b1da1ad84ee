-- The minute limits of one request: of its organization, project, key and end user at once.
-- KEYS, three of each scope: 1 zset request id -> ms of admission; 2 hash request id -> its tokens
-- as 'input:output', with the fields 'input' and 'output' for their sums; 3 zset request id -> ms at
-- which its place lapses. All carry the organization in a hash tag, so a cluster keeps them together.
-- ARGV: action, request id, then
--   reserve: input tokens, output tokens, lease in ms, and of each scope the most requests, tokens,
--            input tokens, output tokens and requests under way (-1 for no limit);
--   reconcile: input tokens, output tokens;  renew: lease in ms;  release, peek: nothing.
local WINDOW_MS = 60000
local CONCURRENCY_WAIT_MS = 1000
local TTL_MS = 180000
local OLDEST_MAX = 4096 -- admissions looked through for a wait
local METRICS = {'requests', 'tokens', 'input_tokens', 'output_tokens', 'concurrency'}
local action = ARGV[1]
local id = ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function tokens_of(scope, member)
  local stored = redis.call('HGET', scope.tokens, member)
  if not stored then return nil end
  local input, output = string.match(stored, '(%d+):(%d+)')
  return tonumber(input), tonumber(output)
end

local function add(scope, input, output)
  if input ~= 0 then redis.call('HINCRBY', scope.tokens, 'input', input) end
  if output ~= 0 then redis.call('HINCRBY', scope.tokens, 'output', output) end
end

local function forget(scope, member)
  local input, output = tokens_of(scope, member)
  if input then
    redis.call('HDEL', scope.tokens, member)
    add(scope, -input, -output)
  end
  redis.call('ZREM', scope.admitted, member)
end

local function expire(scope)
  redis.call('PEXPIRE', scope.admitted, TTL_MS)
  redis.call('PEXPIRE', scope.tokens, TTL_MS)
  redis.call('PEXPIRE', scope.live, TTL_MS)
end

local function read(scope)
  local sums = redis.call('HMGET', scope.tokens, 'input', 'output')
  scope.requests = redis.call('ZCARD', scope.admitted)
  scope.input = tonumber(sums[1] or '0')
  scope.output = tonumber(sums[2] or '0')
end

local scopes = {}
for i = 1, #KEYS, 3 do
  local scope = {admitted = KEYS[i], tokens = KEYS[i + 1], live = KEYS[i + 2]}
  scopes[#scopes + 1] = scope
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', scope.admitted, '-inf', now - WINDOW_MS)) do
    forget(scope, member)
  end
  redis.call('ZREMRANGEBYSCORE', scope.live, '-inf', now)
end

if action == 'release' then -- the request was never served: give everything back
  for _, scope in ipairs(scopes) do
    forget(scope, id)
    redis.call('ZREM', scope.live, id)
  end
  return {1}
end

if action == 'reconcile' then -- it ended: count what it used instead of what it reserved
  local used_input, used_output = tonumber(ARGV[3]), tonumber(ARGV[4])
  for _, scope in ipairs(scopes) do
    local input, output = tokens_of(scope, id)
    if input then
      redis.call('HSET', scope.tokens, id, used_input .. ':' .. used_output)
      add(scope, used_input - input, used_output - output)
    end
    redis.call('ZREM', scope.live, id)
  end
  return {1}
end

if action == 'renew' then -- still under way
  for _, scope in ipairs(scopes) do
    redis.call('ZADD', scope.live, 'XX', now + tonumber(ARGV[3]), id)
    redis.call('PEXPIRE', scope.live, TTL_MS)
  end
  return {1}
end

local function reset_ms(scope)
  local newest = redis.call('ZREVRANGE', scope.admitted, 0, 0, 'WITHSCORES')
  return newest[2] and math.max(0, tonumber(newest[2]) + WINDOW_MS - now) or 0
end

if action == 'peek' then -- somebody looks: requests, input, output, reset and places of each scope
  local seen = {}
  for _, scope in ipairs(scopes) do
    read(scope)
    seen[#seen + 1] = scope.requests
    seen[#seen + 1] = scope.input
    seen[#seen + 1] = scope.output
    seen[#seen + 1] = reset_ms(scope)
    seen[#seen + 1] = redis.call('ZCARD', scope.live)
  end
  return seen
end

local input, output, lease_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local demand = {1, input + output, input, output, 1}

-- Milliseconds until `needed` of a metric have left the window, the oldest admissions first.
local function wait_for(scope, metric, needed)
  if metric == 'concurrency' then return CONCURRENCY_WAIT_MS end
  local freed = 0
  local oldest = redis.call('ZRANGE', scope.admitted, 0, OLDEST_MAX - 1, 'WITHSCORES')
  for i = 1, #oldest, 2 do
    local a, b = tokens_of(scope, oldest[i])
    a, b = a or 0, b or 0
    if metric == 'requests' then freed = freed + 1
    elseif metric == 'tokens' then freed = freed + a + b
    elseif metric == 'input_tokens' then freed = freed + a
    else freed = freed + b end
    if freed >= needed then return math.max(1, tonumber(oldest[i + 1]) + WINDOW_MS - now) end
  end
  return WINDOW_MS
end

local refused, refused_by, wait_ms = '', 0, 0
for place, scope in ipairs(scopes) do
  forget(scope, id) -- a reservation made before its tokens were counted
  redis.call('ZREM', scope.live, id)
  read(scope)
  local used = {
    scope.requests, scope.input + scope.output, scope.input, scope.output,
    redis.call('ZCARD', scope.live)}
  for m, metric in ipairs(METRICS) do
    local limit = tonumber(ARGV[5 + (place - 1) * #METRICS + m])
    if limit >= 0 and demand[m] > 0 and used[m] + demand[m] > limit then
      local wait = wait_for(scope, metric, used[m] + demand[m] - limit)
      if wait > wait_ms then refused, refused_by, wait_ms = metric, place - 1, wait end
    end
  end
end

local answer = {refused, refused_by, wait_ms}
for _, scope in ipairs(scopes) do
  if refused == '' then
    redis.call('ZADD', scope.admitted, now, id)
    redis.call('HSET', scope.tokens, id, input .. ':' .. output)
    add(scope, input, output)
    redis.call('ZADD', scope.live, now + lease_ms, id)
    expire(scope)
    scope.requests = scope.requests + 1
    scope.input = scope.input + input
    scope.output = scope.output + output
  end
  answer[#answer + 1] = scope.requests
  answer[#answer + 1] = scope.input
  answer[#answer + 1] = scope.output
  answer[#answer + 1] = reset_ms(scope)
end
return answer
