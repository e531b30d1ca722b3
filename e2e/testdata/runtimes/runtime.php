<?php // Garbage, exceptions with traces of stacks, and code that is made for patterns.
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
echo fib(20), "\n";
$a = [];
for ($i = 0; $i < 20000; $i++)
	$a[] = "x$i";
gc_collect_cycles();
echo count($a), preg_replace('/(a|b)+c/', 'x', 'ababc'), json_encode([1, "a" => 2]), "\n";
try { throw new Exception("x"); } catch (Exception $e) { echo $e->getTraceAsString(), "\n"; }
exit(3);
