-- A run that spends its time in the interpreter's own functions: tables, strings, metatables, protected calls, the collector.
-- Without errors and coroutines, because uftrace shall be able to trace it, too, and cannot follow _longjmp.
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local n = tonumber(arg and arg[1]) or 8
local t = {}
for round = 1, n do
  for i = 1, 4000 do t[i] = tostring(i * round) .. "x" end
  table.sort(t)
  local s = table.concat(t, ","):gsub("%d", "%0%0"):upper()
  for w in s:sub(1, 20000):gmatch("%w+") do t[#t] = w end
  fib(20)
  local total = setmetatable({sum = 0}, {__call = function(self, v) self.sum = self.sum + v; return self end, __index = function(_, k) return k end})
  for i = 1, 20000 do total(i)(total[i]) end
  for i = 1, 3000 do pcall(string.format, "%d %s", i, "x") end
end
collectgarbage()
print(#t)
