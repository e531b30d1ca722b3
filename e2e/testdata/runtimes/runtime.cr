# Garbage, exceptions with traces of stacks, fibers.
def fib(n : Int32) : Int32
  n < 2 ? n : fib(n - 1) + fib(n - 2)
end

def deep(n : Int32) : Int32
  n == 0 ? 0 : 1 + deep(n - 1)
end

puts fib(20), deep(10000)
20.times { GC.collect; (1..2000).map(&.to_s) }
begin
  raise "x"
rescue e
  puts e.message, e.backtrace.size > 0
end
channel = Channel(Int32).new
8.times { |i| spawn { sleep 0.01; channel.send i } }
puts (0...8).sum { channel.receive }
exit 3
