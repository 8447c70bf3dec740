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
  real(c_double), pointer :: a(:, :), x(:)
  integer(c_int64_t) :: id
  integer :: i, j

  call c_f_pointer(nv2dalloc(30_c_int64_t, 20_c_int64_t), a, [30, 20])
  id = genid("x")
  call c_f_pointer(nvalloc(id, 8000_c_size_t, 1), x, [1000])
  print "(a, 3(1x, f0.1))", "found", a(1, 1), a(30, 20), x(1000)
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
end program
END
gfortran "$root/share/belay/belay_nvm.f90" program.f90 -o program -L"$root/lib" -lbelay
export LD_LIBRARY_PATH=$root/lib BELAY_POOL=$TMPDIR/pool BELAY_POLICY=sync
for wanted in "found .0 .0 .0" "found 101.0 2030.0 2.0" "found 202.0 4060.0 4.0"; do
        found=$(./program)
        [ "${found//0./.}" = "$wanted" ] || [ "$found" = "$wanted" ] || { echo "'$found', not '$wanted'"; exit 1; }
done
echo "variables are found again"
