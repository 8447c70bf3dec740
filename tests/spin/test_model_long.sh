#!/bin/bash
# The model of the commit holds, and each of its mutations is caught. timeout: 900
# builds: normal
set -eu
if ! command -v spin >/dev/null; then
        echo "spin is not installed"
        exit 77
fi
src=${TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}/tests/spin/commit.pml
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cp "$src" commit.pml

# make_check NAME FLAGS OPTIONS-OF-SPIN...
make_check() {
        local name=$1 flags=$2
        shift 2
        spin "$@" -a commit.pml >/dev/null
        # shellcheck disable=SC2086
        gcc -w -O2 $flags -o "$name" pan.c
}

# errors COMMAND...: the number of errors the verifier reports; a search cut short is one, too.
errors() {
        "$@" >out 2>&1 || true
        if grep -q "max search depth too small" out; then
                echo cut
        else
                sed -n 's/.*errors: \([0-9]*\).*/\1/p' out
        fi
}

make_check safe "-DSAFETY -DNOCLAIM"
found=$(errors ./safe -m1000000)
echo "torn units, budget, deadlocks: $found errors, $(sed -n 's/ *\([0-9]*\) states, stored.*/\1/p' out) states"
[ "$found" = 0 ] || { cat out; exit 1; }

# One epoch: fairness multiplies the states.
make_check live "-DNFAIR=3" -DEPOCHS=1
found=$(errors ./live -a -f -m1000000)
echo "waits end: $found errors"
[ "$found" = 0 ] || { cat out; exit 1; }

for mutant in $(seq 11); do
        make_check "mutant$mutant" "-DSAFETY -DNOCLAIM" "-DMUTANT=$mutant"
        found=$(errors "./mutant$mutant" -m1000000)
        echo "mutation $mutant: $found errors"
        [ "$found" != 0 ] || { cat out; exit 1; }
done
