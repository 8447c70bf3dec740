#!/bin/bash
# Fuzzes every decoder with libFuzzer.
#   fuzz.sh SECONDS   random, that long for each target; new inputs are kept in build/fuzz/corpus
#   fuzz.sh --smoke   a fixed seed and number of runs, so that the result does not vary
# A crashing input is left in build/fuzz/ as <target>-crash-…; with its fix it goes into tests/fuzz/corpus.
set -eu
cd "$(dirname "$0")/.."
dir=build/fuzz

scripts/build.sh $dir -DCMAKE_C_COMPILER=clang -DBELAY_FUZZ=ON

export ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
fuzz() { # TARGET OPTIONS...
        local target=$1 name=${1#fuzz_}
        shift
        mkdir -p "$dir/corpus/$name"
        if ! "$dir/bin/fuzz/$target" -artifact_prefix="$dir/$target-" -timeout=10 -rss_limit_mb=1024 \
                "$@" "tests/fuzz/corpus/$name" >"$dir/$target.log" 2>&1; then
                tail -60 "$dir/$target.log"
                echo "$target: FAILED"
                return 1
        fi
        echo "$target: $(grep -a '^Done' "$dir/$target.log")"
}

failed=0
for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || continue
        target=$(basename "$source" .c)
        if [ "${1:-60}" = --smoke ]; then
                # The first folder is where libFuzzer writes: never the one in the tree. Empty at the start, so that
                # the run does not depend on earlier ones.
                rm -rf "$dir/smoke" && mkdir -p "$dir/smoke"
                fuzz "$target" -seed=1 -runs=5000 "$dir/smoke" || failed=1
        else
                fuzz "$target" -max_total_time="${1:-60}" "$dir/corpus/${target#fuzz_}" || failed=1
        fi
done
exit $failed
