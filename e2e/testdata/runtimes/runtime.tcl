# Errors, and a stack that ends.
proc fib n {expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]}}
proc deep n {deep [incr n]}
puts [fib 18]
puts [catch {error x} message]$message
puts [catch {deep 1}]
exit 3
