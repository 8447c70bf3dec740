#!/bin/bash
# builds: normal
# Does a Fortran program find its variables again?
set -euo pipefail

if ! command -v gfortran >/dev/null; then
        echo "skipped: there is no gfortran"
        exit 0
fi
top=$TMPDIR/top
make -C "$TEST_SRC" --no-print-directory install DESTDIR="$top" PREFIX=/opt/belay >"$TMPDIR/install.log"
root=$top/opt/belay

cd "$TMPDIR"
cat >program.f90 <<'END'
program main
  use belay_nvm
  implicit none
  real(c_double), pointer :: a(:, :), x(:), scratch(:)
  real(c_double), target, save :: own(3000) = 0
  integer(c_int64_t) :: id
  integer :: i, j

  call c_f_pointer(nv2dalloc(30_c_int64_t, 20_c_int64_t), a, [30, 20])
  id = genid("x")
  call c_f_pointer(nvalloc(id, 8000_c_size_t, 1), x, [1000])
  ! Not persistent: zero in every run.
  call c_f_pointer(nvalloc(genid("scratch"), 8000_c_size_t, 0), scratch, [1000])
  if (nvattach(genid("own"), c_loc(own), c_sizeof(own)) /= 0) stop 4
  print "(a, 5(1x, f0.1))", "found", a(1, 1), a(30, 20), x(1000), scratch(7), own(3000)
  scratch = scratch + 1
  own = own + 0.5
  do j = 1, 20
    do i = 1, 30
      a(i, j) = a(i, j) + i + 100 * j
    end do
  end do
  x = x + 1
  if (nvchkptall() /= 0) stop 1
  x = x + 1
  if (nvchkptid(id) /= 0) stop 2
  a = -1
  if (nvsize(id) /= 8000) stop 3
  if (nvsize(genid("scratch")) /= 0 .or. belay_error_code() /= -2) stop 5
  if (index(nverror(), "scratch") == 0) stop 6
  if (nvchkptid(genid("scratch")) /= -22) stop 7
end program
END
gfortran "$root/share/belay/belay_nvm.f90" program.f90 -o program -L"$root/lib" -lbelay-nvm -lbelay
export LD_LIBRARY_PATH=$root/lib BELAY_POOL=$TMPDIR/pool BELAY_POLICY=sync
for wanted in "found .0 .0 .0 .0 .0" "found 101.0 2030.0 2.0 .0 .5" "found 202.0 4060.0 4.0 .0 1.0"; do
        found=$(./program)
        [ "${found//0./.}" = "$wanted" ] || [ "$found" = "$wanted" ] || { echo "'$found', not '$wanted'"; exit 1; }
done
echo "variables are found again"
