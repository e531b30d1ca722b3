! Exceptions of C++ through frames of Fortran, in the main thread and in two others.
module calls
  use iso_c_binding
  implicit none
  interface
     integer(c_int) function check(i) bind(c)
       import c_int
       integer(c_int), value :: i
     end function check
  end interface
contains
  recursive integer(c_int) function through(i, depth) result(r) bind(c)
    integer(c_int), value :: i, depth
    character(len=:), allocatable :: text
    text = repeat('x', depth + 1)
    if (depth == 0) then
       r = check(i)
    else
       r = through(i, depth - 1) + len_trim(text) - depth
    end if
  end function through

  subroutine say(caught) bind(c)
    integer(c_int), value :: caught
    write (*, '(a, i0)') 'caught ', caught
    flush (6)
  end subroutine say
end module calls
