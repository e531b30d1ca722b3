-- The table library and what stands on tables: sorting, moving, metatables, closures, iteration, integer and float keys.
local seed = 42
local function random(n) seed = (seed * 1103515245 + 12345) % 2147483648; return seed % n end
local t = {}
for i = 1, 5000 do t[i] = random(100000) end
table.sort(t)
for i = 2, #t do assert(t[i - 1] <= t[i]) end
table.sort(t, function(a, b) return a > b end)
print("sorted", t[1], t[2500], t[5000])
for i = 1, 500 do table.insert(t, 1 + random(#t), i) end
for _ = 1, 500 do table.remove(t, 1 + random(#t)) end
print("insert and remove", #t, select("#", table.unpack(t, 1, 200)))
print("move", table.concat(table.move({1, 2, 3, 4, 5}, 2, 5, 1), " "), table.concat(table.move({1, 2, 3}, 1, 3, 3), " "))
local Account = {}
Account.__index = Account
function Account.new(b) return setmetatable({balance = b}, Account) end
function Account:deposit(v) self.balance = self.balance + v; return self end
Account.__add = function(a, b) return Account.new(a.balance + b.balance) end
Account.__eq = function(a, b) return a.balance == b.balance end
Account.__call = function(self, k) return self.balance * k end
Account.__tostring = function(self) return "account of " .. self.balance end
Account.__len = function(self) return self.balance end
Account.__concat = function(a, b) return tostring(a) .. "&" .. tostring(b) end
local a = Account.new(0)
for i = 1, 1000 do a = a:deposit(i) + Account.new(1) end
print(tostring(a), a(2), #a, a .. "x", a == Account.new(a.balance))
local proxy = setmetatable({}, {__index = function(_, k) return k * 2 end, __newindex = function(p, k, v) rawset(p, k, v + 1) end})
proxy[5] = 10
print("proxy", proxy[5], proxy[21])
local counters = {}
for i = 1, 100 do local n = 0; counters[i] = function() n = n + i; return n end end
local s = 0
for _ = 1, 50 do for i = 1, 100 do s = s + counters[i]() end end
print("closures", s)
local h = {}
for i = 1, 3000 do h["k" .. i] = i; h[i + 0.5] = i end
for i = 1, 3000, 2 do h["k" .. i] = nil end
local n, sum = 0, 0
for _, v in pairs(h) do n = n + 1; sum = sum + v end
print("hash", n, sum)
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print("fib", fib(22))
local function sieve(n)
  local c, p = 0, {}
  for i = 2, n do if not p[i] then c = c + 1; for j = i * i, n, i do p[j] = true end end end
  return c
end
print("primes", sieve(20000))
goto done
print("never")
::done::
print(next({}), rawlen({1, 2}), rawequal(h, h), select(-1, 1, 2, 3))
