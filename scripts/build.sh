#!/bin/bash
# Configures on first use and builds: build.sh DIRECTORY [--target NAME] [CMake options]
set -eu
cd "$(dirname "$0")/.."
dir=$1
shift
target=all
if [ "${1:-}" = --target ]; then
        target=$2
        shift 2
fi

# Repeating options at every call keeps an existing directory in step; without options it is skipped.
if [ ! -f "$dir/build.ninja" ] || [ $# -gt 0 ]; then
        mkdir -p "$dir"
        if ! cmake -S . -B "$dir" -G Ninja "$@" >"$dir/configure.log" 2>&1; then
                cat "$dir/configure.log" >&2
                exit 1
        fi
        sed -n '/^-- belay/,/^--   sanitizers/s/^-- //p' "$dir/configure.log"
fi
cmake --build "$dir" --target "$target" -- --quiet
