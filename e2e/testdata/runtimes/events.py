# The same by gevent, with timers.
import gevent
import gevent.pool
import sys


def work(i):
    s = 0
    for k in range(1, 50):
        gevent.sleep(0 if k % 3 else 0.001)
        s += sorted(range(k), key=lambda x: -x)[0]
    return s


print(sum(gevent.pool.Pool(20).map(work, range(100))))
sys.exit(3)
