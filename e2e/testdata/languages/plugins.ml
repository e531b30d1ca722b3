(* Runs a module that is compiled apart. *)
let () =
  try Dynlink.loadfile Sys.argv.(1)
  with Dynlink.Error (Dynlink.Library's_module_initializers_failed e) -> raise e
