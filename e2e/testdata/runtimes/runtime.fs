\ Faults that become exceptions: nothing at 0, and a stack that ends.
: fib dup 2 < if exit then dup 1- recurse swap 2 - recurse + ;
: nothing 0 @ ;
: deep 1+ recurse ;
20 fib . ' nothing catch . 0 ' deep catch . cr 3 (bye)
