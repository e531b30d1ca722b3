(* Closures, functors, exceptions, tail calls, floating point, objects and laziness: what calls of OCaml look like. *)
module M = Map.Make(String)
let rec fib n = if n < 2 then n else fib (n-1) + fib (n-2)
let find m k = try M.find k m with Not_found -> -1
let words = List.init 2000 (fun i -> "w" ^ string_of_int (i * 7919 mod 1009))
let () =
  let m = List.fold_left (fun m w -> M.update w (function None -> Some 1 | Some n -> Some (n+1)) m) M.empty words in
  let h = Hashtbl.create 16 in
  List.iter (fun w -> Hashtbl.replace h w (find m w)) words;
  let missing = List.fold_left (fun a i -> a + find m ("x" ^ string_of_int i)) 0 (List.init 3000 Fun.id) in
  let sorted = List.sort compare words in
  let b = Buffer.create 10 in
  List.iter (fun s -> Printf.bprintf b "%s %d %.3f;" s (String.length s) (sqrt (float (String.length s)))) sorted;
  Printf.printf "%d %d %d %d %s\n" (fib 18) (Hashtbl.length h) missing (Buffer.length b) (Digest.to_hex (Digest.string (Buffer.contents b)));
  let r = ref 0 in
  let lz = List.map (fun i -> lazy (incr r; i * 2)) (List.init 500 Fun.id) in
  let s = List.fold_left (fun a l -> a + Lazy.force l) 0 lz in
  Printf.printf "%d %d\n" s !r;
  let seq = Seq.filter (fun x -> x mod 3 = 0) (List.to_seq (List.init 1000 Fun.id)) in
  print_int (Seq.fold_left (+) 0 seq); print_newline ();
  (try ignore (List.hd []) with Failure s -> print_endline s);
  let a = Array.init 1000 (fun i -> (i * 7919) mod 1000) in
  Array.sort compare a; Array.stable_sort (fun a b -> compare b a) a;
  print_int a.(3); print_newline ();
  let o = object method x n = if n = 0 then 0 else 1 end in print_int (o#x 3);
  print_newline ()
