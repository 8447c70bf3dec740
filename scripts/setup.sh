#!/bin/bash
# Installs the Debian packages that a make target needs, if any is missing: setup.sh build|demo|test|long
set -eu

build="gcc libc6-dev cmake ninja-build pkg-config liburing-dev libpmem2-dev libxxhash-dev scdoc"
demo="$build"
test="$build g++ gfortran clang libclang-rt-14-dev clang-format clang-tidy cppcheck python3"

long="$test spin qemu-system-x86 busybox-static"

case "${1:-}" in
build) wanted=$build ;;
demo) wanted=$demo ;;
test) wanted=$test ;;
long) wanted=$long ;;
*)
        echo "usage: setup.sh build|demo|test|long" >&2
        exit 2
        ;;
esac

# Other systems bring their own packages; the build names what it does not find.
command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || exit 0

# The test in a guest skips, and says so, where this fails.
fetch_guest() {
        if [ "$1" = long ] && ! "$(dirname "$0")/../tests/pmem/fetch_guest.sh"; then
                echo "no kernel for the test of persistent memory" >&2
        fi
}

# One query; a package that is unknown or removed does not show up as "installed".
# shellcheck disable=SC2086
installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' $wanted 2>/dev/null || true)"
missing=""
for package in $wanted; do
        case "$installed" in
        *" installed:$package "*) ;;
        *) missing="$missing $package" ;;
        esac
done
if [ -z "$missing" ]; then
        fetch_guest "$1"
        exit 0
fi

if [ "$(id -u)" = 0 ]; then
        as_root=""
elif sudo -n true 2>/dev/null; then
        as_root="sudo -n"
else
        echo "missing packages; install them with: sudo apt-get install$missing" >&2
        exit 1
fi

echo "installing:$missing"
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The lists may be absent or old; if they cannot be fetched, the install below says what is wrong.
$apt update >"$log" 2>&1 || true
# shellcheck disable=SC2086
if ! $apt install -y --no-install-recommends $missing >>"$log" 2>&1; then
        tail -20 "$log" >&2
        echo "cannot install:$missing" >&2
        exit 1
fi
fetch_guest "$1"
