-- Garbage, errors, coroutines, and a stack that ends.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local function deep(n) return 1 + deep(n + 1) end
print(fib(22))
for i = 1, 20 do collectgarbage() end
local yields = coroutine.wrap(function() for i = 1, 5 do coroutine.yield(i) end end)
print(yields(), yields())
print(pcall(error, "x"))
print((pcall(deep, 1)))
print(select('#', string.gsub(("ab"):rep(1000), "a", "c")))
os.exit(3)
