--  Exceptions through frames with something to be cleaned up, in the environment task and in two others.
with Ada.Finalization;
with Ada.Text_IO;

procedure Calls is
   Refused : exception;

   type Counts is array (1 .. 3) of Natural;
   Caught, Cleaned : Counts := (others => 0);

   type Guard (Of_Task : Positive) is new Ada.Finalization.Limited_Controlled with null record;
   overriding procedure Finalize (G : in out Guard);
   overriding procedure Finalize (G : in out Guard) is
   begin
      Cleaned (G.Of_Task) := Cleaned (G.Of_Task) + 1;
   end Finalize;

   function Check (I : Integer) return Integer;
   pragma No_Inline (Check);
   function Check (I : Integer) return Integer is
   begin
      if I mod 3 = 0 then
         raise Refused with "refused" & Integer'Image (I);
      end if;
      return I;
   end Check;

   function Through (Of_Task : Positive; I, Depth : Integer) return Integer;
   pragma No_Inline (Through);
   function Through (Of_Task : Positive; I, Depth : Integer) return Integer is
      G : Guard (Of_Task);
      pragma Unreferenced (G);
   begin
      if Depth = 0 then
         return Check (I);
      end if;
      return Through (Of_Task, I, Depth - 1) + 1;
   end Through;

   procedure Work (Of_Task : Positive);
   procedure Work (Of_Task : Positive) is
      Sum : Integer := 0;
   begin
      for I in 1 .. 60 loop
         begin
            Sum := Sum + Through (Of_Task, I, I mod 4);
         exception
            when Refused =>
               Caught (Of_Task) := Caught (Of_Task) + 1;
         end;
      end loop;
      if Sum /= 1_260 then
         raise Program_Error with Integer'Image (Sum);
      end if;
   end Work;
begin
   declare
      task type Worker (Number : Positive);
      task body Worker is
      begin
         Work (Number);
      end Worker;
      A : Worker (2);
      B : Worker (3);
      pragma Unreferenced (A, B);
   begin
      Work (1);
   end;
   for T in Counts'Range loop
      Ada.Text_IO.Put_Line (Natural'Image (Caught (T)) & Natural'Image (Cleaned (T)));
   end loop;
   raise Refused with "at the end";
end Calls;
