#!/bin/bash
# clang-format, clang-tidy, cppcheck and gcc -fanalyzer over our own code, syntax of scripts.
#
# A clean result is remembered in build/lint-cache under a hash of the tool, its options, the file and every
# header it includes, so that a repeat looks only at what changed.
#   lint.sh                   all of it
#   lint.sh --format          formats the files in place
#   lint.sh --one TOOL FILE   one check
set -eu
cd "$(dirname "$0")/.."
cache=build/lint-cache

# One variant of src/base/hash_xxh3.c stands for all.
flags=(-std=gnu11 -D_GNU_SOURCE= -DHASH_SUFFIX=base -Iinclude -Isrc)
for library in liburing libpmem2; do
        if echo "#include <$library.h>" | gcc -E - >/dev/null 2>&1; then
                flags+=("-DBELAY_HAVE_${library^^}=1")
        else
                flags+=("-DBELAY_HAVE_${library^^}=0")
        fi
done

command_for() { # TOOL FILE: sets `command`
        case $1 in
        clang-tidy) command=(clang-tidy --quiet "$2" -- "${flags[@]}") ;;
        cppcheck)
                # shellcheck disable=SC2054
                command=(cppcheck --quiet --enable=warning,performance,portability --error-exitcode=1
                        --inline-suppr --suppress=missingIncludeSystem --std=c11 --language=c
                        "${flags[@]:1}" "$2")
                ;;
        analyzer) command=(gcc "${flags[@]}" -O2 -fanalyzer -Werror -c -o /dev/null "$2") ;;
        esac
}

check_one() { # TOOL FILE
        local command key files output
        command_for "$1" "$2"
        # -MM: our headers, not the system's. A file that does not even preprocess is shown by its tool.
        files=$(gcc "${flags[@]}" -MM "$2" 2>/dev/null | sed 's/^[^:]*://; s/\\$//' || true)
        # shellcheck disable=SC2086
        key=$({
                echo "${command[*]}"
                "${command[0]}" --version
                cat .clang-tidy "$2" $files
        } | sha256sum | cut -d' ' -f1)
        [ -e "$cache/$key" ] && return 0
        if output=$("${command[@]}" 2>&1); then
                touch "$cache/$key"
                # A hint (not an error) is shown, without the tool's own count of suppressed ones.
                echo "$output" | grep -v -e '^[0-9]* warnings\? generated' -e '^$' || true
        else
                printf '%s\n%s %s: not clean\n' "$output" "$1" "$2"
                return 1
        fi
}

if [ "${1:-}" = --one ]; then
        check_one "$2" "$3"
        exit
fi

mkdir -p "$cache"
failed=0
sources() { # EXTENSION FOLDER...
        local extension=$1 folder
        shift
        for folder; do
                if [ -d "$folder" ]; then find "$folder" -name "*.$extension" -type f; fi
        done | sort
}

code=(src cli bench examples)
all_code() {
        sources c "${code[@]}" tests
        sources h "${code[@]}" tests include
}

if [ "${1:-}" = --format ]; then
        all_code | xargs -r clang-format -i
        exit
fi

unformatted=$(all_code | xargs -r clang-format --dry-run -Werror 2>&1 | sed -n 's/^\([^ :]*\):[0-9:]* .*/\1/p' | sort -u)
for file in $unformatted; do
        echo "$file: not formatted (make format)"
        failed=1
done

{
        sources c "${code[@]}" | sed 's/^/clang-tidy /'
        sources c src | sed 's/^/analyzer /'
        sources c "${code[@]}" tests | sed 's/^/cppcheck /'
} | xargs -r -P "$(nproc)" -L 1 "$0" --one || failed=1

for script in $(sources sh scripts tests tools) .ci/run; do
        bash -n "$script" || failed=1
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sources py scripts tests tools | PYTHONPYCACHEPREFIX=$scratch xargs -r python3 -m py_compile || failed=1

if [ $failed = 0 ]; then echo "lint: ok"; else echo "lint: not clean"; fi
exit $failed
