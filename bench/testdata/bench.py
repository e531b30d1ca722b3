# A run that spends its time in the interpreter: calls, dictionaries, strings, regular expressions, sorting.
import collections, json, re, sys

def words(n):
    return sum(len(re.findall(r'\w+', 'the quick brown fox %d' % i)) for i in range(n))

def counts(n):
    c = collections.Counter()
    for i in range(n):
        c[i % 97] += i
    return len(json.dumps(c))

class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __lt__(self, other):
        return (self.x, self.y) < (other.x, other.y)

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

for _ in range(int(sys.argv[1])):
    points = sorted(Point(i * 7919 % 1009, i) for i in range(3000))
    total = words(8000) + counts(40000) + fib(18) + len(points)
print(total)
