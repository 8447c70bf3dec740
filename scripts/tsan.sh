#!/bin/bash
# The stress tests under ThreadSanitizer.
set -eu
cd "$(dirname "$0")/.."
dir=build/tsan
scripts/build.sh $dir -DBELAY_SANITIZE=thread -DBELAY_WERROR=OFF
export TSAN_OPTIONS="history_size=4 exitcode=66"
failed=0
# Not those about processes, handlers and system calls: the sanitizer stands before libc for the same functions, and
# cannot follow a fork with threads. Nor stress_mappings, which leaves it no memory to say what it found.
for name in commit patches pieces content regions tracking disk_full unprotectable early lazy threads messages; do
        test=$dir/bin/tests/stress_$name
        log=$dir/$name.log
        temporary=$(mktemp -d)
        code=0
        TMPDIR=$temporary TEST_SANITIZED=1 timeout -s KILL 900 "$test" >"$log" 2>&1 || code=$?
        rm -rf "$temporary"
        echo "$name: exit $code, $(grep -c 'WARNING: ThreadSanitizer' "$log" || true) reports"
        [ "$code" = 0 ] || { tail -60 "$log"; failed=1; }
done
exit $failed
