-- error() leaves through _longjmp: in loops, from deep calls, from C functions, with handlers, through coroutines, and on stack overflow.
local caught = 0
local function thrower(n) if n == 0 then error("bottom", 0) end thrower(n - 1) return n end
for i = 1, 3000 do
  local ok, e = pcall(thrower, i % 50)
  if not ok and e == "bottom" then caught = caught + 1 end
end
print("caught", caught)
local function handler(e) return "handled " .. tostring(e) end
for _, f in ipairs {
  function() error() end, function() error(nil) end, function() error({}) end, function() error("text", 0) end,
  function() local x = nil; return x.y end, function() return 1 + {} end, function() return #5 end, function() return {} < {} end,
  function() string.rep() end, function() ("x"):bad() end, function() table.concat({{}}) end, function() return math.tointeger({}) end,
  function() setmetatable(1, 2) end, function() string.format("%d", 1.5) end, function() select(0) end, function() return 1 // 0 end,
} do
  local ok, e = xpcall(f, handler)
  print(ok, (tostring(e):gsub("table: 0x%x+", "table"):gsub("^handled [^ ]*:%d+:", "handled")))
end
local function overflow() return overflow() + 1 end
local ok, e = pcall(overflow)
print("overflow", ok, (e:match("stack overflow")))
local function in_handler() return xpcall(error, function() error("again") end, "x") end
print("error in handler", in_handler())
local function sorted_with_error() table.sort({3, 2, 1, 5, 4}, function(a, b) error("from sort", 0) end) end
print(pcall(sorted_with_error))
print(pcall(string.gsub, "abc", ".", function(c) if c == "b" then error("from gsub", 0) end end))
print(pcall(load, function() error("from load", 0) end))
print(load("x ="))
print(pcall(load("local a <const> = 1; return a")))
local n = 0
for i = 1, 500 do
  local co = coroutine.wrap(function() local r = pcall(thrower, 5); coroutine.yield(r); error("out", 0) end)
  co()
  if not pcall(co) then n = n + 1 end
end
print("through coroutines", n)
