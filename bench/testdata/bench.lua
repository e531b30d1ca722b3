-- A run that spends its time in the interpreter's own functions: tables, strings, closures, coroutines, the collector.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local n = tonumber(arg and arg[1]) or 8
local t = {}
for round = 1, n do
  for i = 1, 4000 do t[i] = tostring(i * round) .. "x" end
  table.sort(t)
  local s = table.concat(t, ","):gsub("%d", "%0%0"):upper()
  for w in s:sub(1, 20000):gmatch("%w+") do t[#t] = w end
  fib(20)
  local co = coroutine.wrap(function() for i = 1, 3000 do coroutine.yield({i, n = i}) end end)
  for _ = 1, 3000 do co() end
  for i = 1, 500 do pcall(error, "x" .. i) end
end
collectgarbage()
print(#t)
