-- Garbage collection: churn, weak tables, finalizers, both collectors.
local finalized = 0
local function churn(n)
  local keep = {}
  for i = 1, n do
    local t = setmetatable({i, tostring(i)}, {__gc = function() finalized = finalized + 1 end})
    if i % 100 == 0 then keep[#keep + 1] = t end
  end
  return #keep
end
local kept = 0
for _, mode in ipairs {"incremental", "generational"} do
  collectgarbage(mode)
  for _ = 1, 5 do kept = kept + churn(2000) end
end
collectgarbage()
collectgarbage()
print("finalized", finalized, "kept", kept)
local weak = setmetatable({}, {__mode = "v"})
for i = 1, 1000 do weak[i] = {} end
weak.kept = print
collectgarbage()
local n = 0
for _ in pairs(weak) do n = n + 1 end
print("weak", n)
local ephemeron = setmetatable({}, {__mode = "k"})
for i = 1, 500 do local k = {} ; ephemeron[k] = {k} end
collectgarbage()
print("ephemeron", next(ephemeron))
local function tree(d) if d == 0 then return {} end return {tree(d - 1), tree(d - 1)} end
local function count(t) if not t[1] then return 1 end return 1 + count(t[1]) + count(t[2]) end
for d = 4, 12, 4 do print("tree", d, count(tree(d))) end
