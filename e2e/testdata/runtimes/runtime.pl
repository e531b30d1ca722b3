% Garbage, exceptions, threads.
total(N, S) :- numlist(1, N, L), sum_list(L, S).
:- initialization(main).
main :-
    total(300000, S), writeln(S), garbage_collect,
    catch(atom_length(_, _), error(E, _), (print(E), nl)),
    thread_create((total(1000, R), writeln(R)), T), thread_join(T),
    halt(3).
