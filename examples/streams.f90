! Fortran: memory made on one stream and read on another. docs/languages.md says what a binding has to know.
!
!     gfortran examples/streams.f90 $(pkg-config --libs weir) -Wl,-rpath,$(pkg-config --variable=libdir weir)

module weir
  use, intrinsic :: iso_c_binding
  implicit none

  type, bind(c) :: weir_stream ! passed by value
    integer(c_int64_t) :: id = 0
  end type

  interface
    integer(c_int) function weir_stream_from_pool(device, priority, out) bind(c)
      import
      integer(c_int), value :: device, priority
      type(weir_stream), intent(out) :: out
    end function

    integer(c_int) function weir_stream_wait(stream, other) bind(c)
      import
      type(weir_stream), value :: stream, other
    end function

    integer(c_int) function weir_stream_synchronize(stream) bind(c)
      import
      type(weir_stream), value :: stream
    end function

    integer(c_int) function weir_alloc_on(bytes, stream, out) bind(c)
      import
      integer(c_size_t), value :: bytes
      type(weir_stream), value :: stream
      type(c_ptr), intent(out) :: out
    end function

    integer(c_int) function weir_free(pointer) bind(c)
      import
      type(c_ptr), value :: pointer
    end function

    integer(c_int) function weir_record_stream(pointer, stream) bind(c)
      import
      type(c_ptr), value :: pointer
      type(weir_stream), value :: stream
    end function

    integer(c_int) function weir_copy(destination, source, bytes, stream) bind(c)
      import
      type(c_ptr), value :: destination, source
      integer(c_size_t), value :: bytes
      type(weir_stream), value :: stream
    end function

    type(c_ptr) function weir_error_text() bind(c)
      import
    end function
  end interface

contains

  subroutine check(status)
    integer(c_int), intent(in) :: status
    character(kind=c_char), pointer :: text(:)
    integer :: i
    if (status == 0) return
    call c_f_pointer(weir_error_text(), text, [4096])
    i = 1
    do while (text(i) /= c_null_char)
      write (*, '(a)', advance='no') text(i)
      i = i + 1
    end do
    write (*, *)
    error stop
  end subroutine
end module

program streams
  use weir
  implicit none
  integer, parameter :: n = 100000
  integer(c_size_t), parameter :: bytes = n * 8
  real(c_double), target :: before(n), after(n)
  type(weir_stream) :: compute, copy
  type(c_ptr) :: x
  integer :: i

  before = [(real(i, c_double), i = 1, n)]
  after = 0
  call check(weir_stream_from_pool(0, 0, compute))
  call check(weir_stream_from_pool(0, 0, copy))
  call check(weir_alloc_on(bytes, compute, x))
  call check(weir_copy(x, c_loc(before), bytes, compute))
  call check(weir_stream_wait(copy, compute))            ! copy may read what compute wrote,
  call check(weir_copy(c_loc(after), x, bytes, copy))
  call check(weir_record_stream(x, copy))                ! and the memory is not reused before it has
  call check(weir_free(x))
  call check(weir_stream_synchronize(copy))
  if (any(before /= after)) error stop "what was read is not what was written"
  print '(i0, a)', n, " numbers there and back"
end program
