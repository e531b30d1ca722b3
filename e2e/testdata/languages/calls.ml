(* Exceptions, a stack that ends, and collections of garbage, which look up every return address on the stack. *)
exception Refused of int

let check i = if i mod 3 = 0 then raise (Refused i) else i
let check = Sys.opaque_identity check

let rec through i depth =
  let kept = String.make (depth + 1) 'x' in
  if depth = 0 then begin
    Gc.full_major ();
    check i
  end
  else
    let r = through i (depth - 1) in
    r + String.length kept - depth

let rec deep i = 1 + deep (i + 1)

let () =
  let sum = ref 0 and caught = ref 0 in
  for i = 1 to 60 do
    try sum := !sum + through i (i mod 4) with Refused _ -> incr caught
  done;
  Printf.printf "%d %d\n" !sum !caught;
  (try print_int (deep 0) with Stack_overflow -> print_endline "overflow");
  raise (Refused 0)
