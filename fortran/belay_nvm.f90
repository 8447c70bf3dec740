! belay_nvm: the calls of belay/nvm.h for Fortran. A program compiles this file with its own, since
! compiled modules do not go from one compiler to another.
!
!     real(c_double), pointer :: a(:, :)
!     call c_f_pointer(nv2dalloc(int(n, c_int64_t), int(m, c_int64_t)), a, [n, m])
!     if (nvchkptall() /= 0) stop
module belay_nvm
  use, intrinsic :: iso_c_binding
  implicit none

  interface
    function genid_c(varname) bind(c, name="genid") result(id)
      import :: c_char, c_int64_t
      character(kind=c_char), intent(in) :: varname(*)
      integer(c_int64_t) :: id
    end function
    function nvalloc(id, size, persistent) bind(c) result(p)
      import :: c_int, c_int64_t, c_size_t, c_ptr
      integer(c_int64_t), value :: id
      integer(c_size_t), value :: size
      integer(c_int), value :: persistent
      type(c_ptr) :: p
    end function
    function nv2dalloc(dim1, dim2) bind(c) result(p)
      import :: c_int64_t, c_ptr
      integer(c_int64_t), value :: dim1, dim2
      type(c_ptr) :: p
    end function
    function nv2dalloc_id(id, dim1, dim2, element, persistent) bind(c) result(p)
      import :: c_int, c_int64_t, c_size_t, c_ptr
      integer(c_int64_t), value :: id, dim1, dim2
      integer(c_size_t), value :: element
      integer(c_int), value :: persistent
      type(c_ptr) :: p
    end function
    function nvattach(id, src, size) bind(c) result(code)
      import :: c_int, c_int64_t, c_size_t, c_ptr
      integer(c_int64_t), value :: id
      type(c_ptr), value :: src
      integer(c_size_t), value :: size
      integer(c_int) :: code
    end function
    function nvrealloc(id, src, size) bind(c) result(p)
      import :: c_int64_t, c_size_t, c_ptr
      integer(c_int64_t), value :: id
      type(c_ptr), value :: src
      integer(c_size_t), value :: size
      type(c_ptr) :: p
    end function
    function nvsize(id) bind(c) result(bytes)
      import :: c_int64_t, c_size_t
      integer(c_int64_t), value :: id
      integer(c_size_t) :: bytes
    end function
    function nvdelete(id) bind(c) result(code)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: id
      integer(c_int) :: code
    end function
    function nvchkptall() bind(c) result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function nvchkptid(id) bind(c) result(code)
      import :: c_int, c_int64_t
      integer(c_int64_t), value :: id
      integer(c_int) :: code
    end function
    function nvclose() bind(c) result(code)
      import :: c_int
      integer(c_int) :: code
    end function
  end interface

contains

  function genid(varname) result(id)
    character(*), intent(in) :: varname
    integer(c_int64_t) :: id
    id = genid_c(trim(varname) // c_null_char)
  end function
end module
