-- Coroutines: generators, wrap, errors inside, yields across pcall and metamethods, closing, deep nesting.
local function gen(n) return coroutine.wrap(function() for i = 1, n do coroutine.yield(i) end end) end
local s = 0
for _ = 1, 200 do for v in gen(20) do s = s + v end end
print("generated", s)
local function permgen(a, n)
  if n <= 1 then coroutine.yield(a) return end
  for i = 1, n do
    a[n], a[i] = a[i], a[n]
    permgen(a, n - 1)
    a[n], a[i] = a[i], a[n]
  end
end
local last, c = nil, 0
for p in coroutine.wrap(function() permgen({1, 2, 3, 4, 5, 6}, 6) end) do c = c + 1; last = table.concat(p, ",") end
print("permutations", c, last)
local co = coroutine.create(function(a)
  local ok, e = pcall(function() local b = coroutine.yield(a + 1); error({code = b}) end)
  local r = coroutine.yield(ok, type(e), e.code)
  error("dies with " .. r, 0)
end)
print(coroutine.resume(co, 1))
print(coroutine.resume(co, 42))
print(coroutine.resume(co, "pride"))
print(coroutine.resume(co), coroutine.status(co))
local mt = setmetatable({}, {__index = function(_, k) return coroutine.yield(k) end, __lt = function() return coroutine.yield("lt") end})
local m = coroutine.wrap(function() local x = mt.name; local y = mt < mt; return x, y end)
print(m(), m("value"), m(true))
local function deep(n) if n == 0 then coroutine.yield("bottom") return 0 end return 1 + coroutine.wrap(function() return deep(n - 1) end)() end
print("deep", pcall(deep, 0))
local function nest(n) if n == 0 then return 0 end return 1 + coroutine.wrap(nest)(n - 1) end
print("nested", nest(100))
print("too deep", (select(2, pcall(nest, 1000)):gsub("^[^:]*:%d+: ", ""):gsub("[^:]*:%d+: ", "")))
local closed = {}
do
  local k = coroutine.create(function()
    local a <close> = setmetatable({}, {__close = function() closed[#closed + 1] = "a" end})
    coroutine.yield()
  end)
  coroutine.resume(k)
  print("close", coroutine.close(k), closed[1])
end
print("wrap error", pcall(coroutine.wrap(function() error("x", 0) end)))
