%% Garbage of many processes, exceptions, and functions of the runtime that are C.
-module(runtime).
-export([main/0]).

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

reads(0) -> ok;
reads(N) ->
    {ok, B} = file:read_file("/etc/passwd"),
    _ = binary:split(B, <<"\n">>, [global]),
    garbage_collect(),
    reads(N - 1).

main() ->
    io:format("~p~n", [fib(22)]),
    Self = self(),
    [spawn(fun() -> reads(50), Self ! done end) || _ <- lists:seq(1, 8)],
    [receive done -> ok end || _ <- lists:seq(1, 8)],
    io:format("~p~n", [try list_to_atom(Self) catch error:E -> E end]),
    io:format("~p~n", [erlang:md5("x")]),
    io:format("~p~n", [length(lists:sort([rand:uniform(100000) || _ <- lists:seq(1, 20000)]))]),
    halt(3).
