# files.py CALLS: looks at a file that is there and at one that is not, as programs do.
import os, sys
for i in range(int(sys.argv[1]) // 2):
    os.stat("/etc/passwd")
    try:
        os.stat("/no/such/file")
    except OSError:
        pass
