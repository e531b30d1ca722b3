-- The string library: patterns, formats, packing, big concatenations.
local words = {}
for i = 1, 2000 do words[i] = string.format("%05d-%s-%x", i, string.rep("ab", i % 7), i * 7919) end
local text = table.concat(words, " ")
local n, sum = 0, 0
for d, rest in text:gmatch("(%d+)%-(%w*)%-") do n = n + 1; sum = sum + tonumber(d) + #rest end
print("gmatch", n, sum)
print("gsub", select(2, text:gsub("%a+", string.upper)), #text:gsub("(%w+)%-(%w*)", "%2%1"))
print("find", text:find("01000", 1, true), text:find("0*1500%-", 100))
print("balanced", ("f(a(b)c)(d)"):match("%b()"), ("THE (quick) fox"):find("%((%a+)%)"))
print("frontier", (("THE (quick) fox"):gsub("%f[%a]%a+", function(w) return #w end)))
print(string.format("%q %10.3f %-8s| %+d %#x %g %a", "a\n\"b\0c", 3.14159, "left", 42, 255, 1e20, 1.0))
local packed = string.pack("<i4 z s2 d >I3", -5, "zero", "counted", 2.5, 0x010203)
print("pack", #packed, string.unpack("<i4 z s2 d >I3", packed))
local acc = ""
for i = 1, 300 do acc = acc .. i end
print("concat", #acc, acc:sub(-10), acc:reverse():sub(1, 10), acc:byte(5, 8))
print("utf8", utf8.len("häßlich ☃"), utf8.char(9731, 228), #utf8.charpattern)
for p, c in utf8.codes("aä☃") do io.write(p, ":", c, " ") end
print()
print("rep", #string.rep("x", 100000, ","), ("x"):rep(0) == "")
print("compare", "a" < "b", "Z" < "a", "" < "a", "10" < "9")
print("numbers", tostring(1e15), tostring(2^53), 10 // 3, 10.0 / 3, -7 % 3, -7 // 2.0, 0x7fffffffffffffff + 1, "10" + 5, 3 | 4, ~0)
