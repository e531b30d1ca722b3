(* Garbage, exceptions, and a stack that grows. *)
fun fib n = if n < 2 then n else fib (n - 1) + fib (n - 2);
fun texts 0 = [] | texts n = Int.toString n :: texts (n - 1);
fun repeat 0 = () | repeat n = (ignore (texts 20000); repeat (n - 1));
fun deep 0 = 0 | deep n = 1 + deep (n - 1);
print (Int.toString (fib 20) ^ "\n");
repeat 50;
(hd [] ; ()) handle Empty => print "caught\n";
print (Int.toString (deep 1000000) ^ "\n");
OS.Process.exit OS.Process.failure;
