#!/bin/bash
# The stress tests under ThreadSanitizer. About 25 minutes.
set -eu
cd "$(dirname "$0")/.."
dir=build/tsan
scripts/build.sh $dir -DBELAY_SANITIZE=thread -DBELAY_WERROR=OFF
export TSAN_OPTIONS="suppressions=$PWD/tests/stress/tsan.supp history_size=4 exitcode=66"
failed=0
for test in "$dir"/bin/tests/stress_*; do
        name=$(basename "$test")
        # Uses up all mappings, and then the sanitizer cannot say where it found something.
        [ "$name" != stress_mappings ] || continue
        log=$dir/$name.log
        temporary=$(mktemp -d)
        code=0
        TMPDIR=$temporary TEST_SANITIZED=1 timeout -s KILL 900 "$test" >"$log" 2>&1 || code=$?
        rm -rf "$temporary"
        echo "$name: exit $code, $(grep -c 'WARNING: ThreadSanitizer' "$log" || true) reports"
        [ "$code" = 0 ] || { tail -60 "$log"; failed=1; }
done
exit $failed
