(* Threads, a signal every millisecond, exceptions, a child, and stacks that end in the main thread and in another. *)
let m = Mutex.create () and c = Condition.create ()
let total = ref 0 and ticks = ref 0
let rec fib n = if n < 2 then 1 else fib (n-1) + fib (n-2)
exception Stop of int
let work i =
  for k = 1 to 60 do
    (try if k mod 7 = 0 then raise (Stop k) else ignore (List.map (fun x -> x + k) (List.init 100 Fun.id)) with Stop _ -> ());
    Mutex.lock m; total := !total + fib (8 + i mod 3); Condition.broadcast c; Mutex.unlock m;
    if k mod 10 = 0 then Thread.yield ()
  done
let rec deep i = 1 + deep (i + 1)
let () =
  Sys.set_signal Sys.sigalrm (Sys.Signal_handle (fun _ -> incr ticks; ignore (fib 5)));
  ignore (Unix.setitimer Unix.ITIMER_REAL { Unix.it_interval = 0.001; it_value = 0.001 });
  let ts = List.init 8 (fun i -> Thread.create work i) in
  List.iter Thread.join ts;
  ignore (Unix.setitimer Unix.ITIMER_REAL { Unix.it_interval = 0.; it_value = 0. });
  let p, q = Unix.pipe () in
  (match Unix.fork () with
   | 0 -> ignore (Unix.write_substring q (string_of_int (fib 12)) 0 3); exit 3
   | pid -> let b = Bytes.create 3 in ignore (Unix.read p b 0 3); print_endline (Bytes.to_string b);
     (match snd (Unix.waitpid [] pid) with Unix.WEXITED n -> Printf.printf "exit %d\n" n | _ -> print_endline "?"));
  (try ignore (deep 0) with Stack_overflow -> print_endline "overflow");
  Printf.printf "%d %b\n" !total (!ticks > 0);
  let t = Thread.create (fun () -> try ignore (deep 0) with Stack_overflow -> print_endline "overflow in thread") () in
  Thread.join t
