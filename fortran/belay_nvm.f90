! belay_nvm: the calls of belay/nvm.h for Fortran. A program compiles this file with its own, since
! compiled modules do not go from one compiler to another, and is linked with -lbelay-nvm -lbelay.
!
!     real(c_double), pointer :: a(:, :)
!     call c_f_pointer(nv2dalloc(int(n, c_int64_t), int(m, c_int64_t)), a, [n, m])
!     if (nvchkptall() /= 0) print *, nverror()
!
! Memory of the program's own, with the target attribute, is attached with c_loc; its last checkpoint is in it then:
!
!     real(c_double), target :: x(1000)
!     if (nvattach(genid("x"), c_loc(x), c_sizeof(x)) /= 0) print *, nverror()
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
    function belay_error_code() bind(c) result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function belay_error_c() bind(c, name="belay_error") result(text)
      import :: c_ptr
      type(c_ptr) :: text
    end function
    function strlen_c(text) bind(c, name="strlen") result(bytes)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: text
      integer(c_size_t) :: bytes
    end function
  end interface

contains

  function genid(varname) result(id)
    character(*), intent(in) :: varname
    integer(c_int64_t) :: id
    id = genid_c(trim(varname) // c_null_char)
  end function

  ! The text of the last call that failed.
  function nverror() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: chars(:)
    type(c_ptr) :: p
    integer(c_size_t) :: i
    p = belay_error_c()
    call c_f_pointer(p, chars, [strlen_c(p)])
    allocate(character(size(chars)) :: text)
    do i = 1, size(chars, kind=c_size_t)
      text(i:i) = chars(i)
    end do
  end function
end module
