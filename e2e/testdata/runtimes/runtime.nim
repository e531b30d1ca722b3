## Garbage, exceptions with traces of stacks, and one that ends the program.
proc fib(n: int): int = (if n < 2: n else: fib(n - 1) + fib(n - 2))
proc deep(n: int): int = (if n == 0: 0 else: 1 + deep(n - 1))
proc texts(n: int): seq[string] =
  for i in 0 ..< n: result.add($i)

echo fib(20), " ", deep(1000)
for i in 0 .. 20:
  discard texts(2000)
  GC_fullCollect()
try: raise newException(ValueError, "x")
except ValueError as e: echo e.msg, getStackTrace(e)
var empty: seq[int]
try: echo empty[3]
except IndexDefect: echo "caught"
raise newException(IOError, "the end")
