# Coroutines that share a stack, and leave it at many depths.
import gc
import greenlet
import sys


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def body(id):
    for k in range(200):
        out.append(fib((k + id) % 9))
        main.switch()


def deep(n):
    if n:
        return 1 + sum(map(deep, [n - 1]))
    for g in all:
        if not g.dead:
            g.switch()
    return 0


out = []
main = greenlet.getcurrent()
all = [greenlet.greenlet(lambda id=id: body(id)) for id in range(10)]
for k in range(201):
    deep(k % 7)
gc.collect()
print(len(out), sum(out))
sys.exit(3)
