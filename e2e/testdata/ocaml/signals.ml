(* Signals as often as another process can send them, whose handler calls and raises, while calls, exceptions and collections go
   on. It prints how many calls there were. *)
let rounds = 100_000
let handled = ref 0
let rec fib n = if n < 2 then 1 else fib (n - 1) + fib (n - 2)
let rec deep k = if k = 0 then raise Exit else 1 + deep (k - 1)

let bomb parent =
  (try
     for _ = 1 to 30_000 do
       Unix.kill parent Sys.sigusr1;
       for _ = 1 to 300 do ignore (Sys.opaque_identity parent) done
     done
   with Unix.Unix_error _ -> ());
  Unix._exit 0

let () =
  let handler _ = incr handled; (try ignore (deep 3) with Exit -> ()); ignore (fib 3) in
  Sys.set_signal Sys.sigusr1 (Sys.Signal_handle handler);
  let parent = Unix.getpid () in
  match Unix.fork () with
  | 0 -> Unix.sleepf 0.02; bomb parent
  | child ->
    while !handled = 0 do () done;
    let sum = ref 0 in
    for i = 1 to rounds do
      sum := !sum + fib 7;
      (try ignore (deep (i land 7)) with Exit -> ());
      if i mod 50 = 0 then ignore (Sys.opaque_identity (String.make 3000 'x'))
    done;
    Unix.kill child Sys.sigkill;
    let rec reap () = try ignore (Unix.waitpid [] child) with Unix.Unix_error (Unix.EINTR, _, _) -> reap () in
    reap ();
    Sys.set_signal Sys.sigusr1 Sys.Signal_ignore;
    Printf.printf "%d %d %d\n" !sum (rounds * 41 + !handled * 5) (rounds * 9 / 2 + !handled * 4)
