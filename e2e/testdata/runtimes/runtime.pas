{ Faults that become exceptions, threads, and an exception that ends the program. }
program runtime;
{$mode objfpc}
uses cthreads, classes, sysutils;

type Worker = class(TThread) procedure Execute; override; end;

procedure Worker.Execute;
var i: integer; s: string;
begin
  s := '';
  for i := 1 to 20000 do begin s := s + 'x'; if length(s) > 100 then s := '' end;
end;

function Fib(n: integer): integer;
begin
  if n < 2 then Fib := n else Fib := Fib(n - 1) + Fib(n - 2);
end;

var i, zero: integer; nowhere: ^integer; w: array[0..3] of Worker;
begin
  writeln(Fib(20));
  for i := 0 to 3 do w[i] := Worker.Create(false);
  for i := 0 to 3 do w[i].WaitFor;
  zero := 0;
  try writeln(1 div zero) except on e: EDivByZero do writeln('divided') end;
  nowhere := nil;
  try nowhere^ := 1 except on e: EAccessViolation do writeln('nowhere') end;
  raise Exception.Create('the end');
end.
