# A short run, as most scripts are: modules are loaded, a file is made and read, words are counted.
import argparse, collections, csv, io, json, re, textwrap

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

out = io.StringIO()
rows = csv.writer(out)
for i in range(400):
    rows.writerow([i, 'name %d' % i, i * i])
out.seek(0)
table = {row[0]: [int(n) for n in row if n.isdigit()] for row in csv.reader(out)}
text = json.dumps(table)
words = re.findall(r'[a-z]+', textwrap.fill('the quick brown fox jumps over the lazy dog ' * 60))
print(json.loads(text) == table, len(text), collections.Counter(words).most_common(2), fib(22))
