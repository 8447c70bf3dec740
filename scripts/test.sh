#!/bin/bash
# What `make test` runs. With --long: the tests named *_long, those that say `long:`, and a longer fuzz run instead.
# Options after that go to run_tests.py, e.g. `scripts/test.sh --only unit_pool`.
set -eu
cd "$(dirname "$0")/.."

# Without a build there is nothing to test.
if ! scripts/build.sh build; then
        echo "the build failed"
        echo "0 passed, 1 failed"
        exit 1
fi

# With assertions. gcc warns wrongly in instrumented code, so warnings are the normal build's matter.
asan="scripts/build.sh build/asan -DBELAY_SANITIZE=address,undefined -DBELAY_WERROR=OFF"
asan="$asan -DCMAKE_BUILD_TYPE=Debug '-DCMAKE_C_FLAGS_DEBUG=-O1 -g'"

# Only for the tests that ask for it with `builds:`: most others are about one thread, or start processes.
tsan="scripts/build.sh build/tsan --target tests_tsan -DBELAY_SANITIZE=thread -DBELAY_WERROR=OFF"

if [ "${1:-}" = --long ]; then
        exec python3 scripts/run_tests.py --step build-asan="$asan" --step fuzz="scripts/fuzz.sh 60" \
                --build build --build asan=build/asan "$@"
fi
exec python3 scripts/run_tests.py \
        --step lint=scripts/lint.sh \
        --step layers="python3 scripts/check_layers.py --objects build" \
        --step headers="python3 scripts/check_headers.py" \
        --step symbols="python3 scripts/check_symbols.py build/lib/libbelay.so src/api/libbelay.map include/belay" \
        --step symbols-read="python3 scripts/check_symbols.py build/lib/libbelay-read.so src/read/libbelay-read.map include/belay" \
        --step symbols-nvm="python3 scripts/check_symbols.py build/lib/libbelay-nvm.so src/nvm/libbelay-nvm.map include/belay" \
        --step symbols-static="python3 scripts/check_symbols.py build/lib/libbelay.a src/api/libbelay.map include/belay" \
        --step signal-zone="python3 scripts/check_signal_zone.py" \
        --step build-asan="$asan" \
        --step build-tsan="$tsan" \
        --step fuzz="scripts/fuzz.sh --smoke" \
        --build build --build asan=build/asan --build tsan=build/tsan "$@"
