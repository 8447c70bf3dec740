#!/bin/bash
# builds: normal
# Does an installed Belay serve a program that knows only pkg-config or CMake?
set -euo pipefail

top=$TMPDIR/top
make -C "$TEST_SRC" --no-print-directory install DESTDIR="$top" PREFIX=/opt/belay >"$TMPDIR/install.log"
root=$top/opt/belay
for file in bin/belay bin/belay-bench include/belay/belay.h lib/libbelay.a lib/libbelay.so.0 \
        include/belay/read.h lib/libbelay-read.so.0 lib/pkgconfig/belay-read.pc lib/pkgconfig/belay.pc lib/cmake/belay/belayConfig.cmake \
        include/belay/nvm.h lib/libbelay-nvm.so.0 lib/libbelay-nvm.a lib/pkgconfig/belay-nvm.pc; do
        [ -e "$root/$file" ] || { echo "not installed: $file"; exit 1; }
done
for source in "$TEST_SRC"/docs/man/*.scd; do
        page=$(basename "$source" .scd)
        [ -s "$root/share/man/man${page##*.}/$page" ] || { echo "not installed: $page"; exit 1; }
done
if find "$top" -type f -not -path "$root/*" | grep .; then
        echo "installed outside the prefix"
        exit 1
fi

mkdir "$TMPDIR/program"
cd "$TMPDIR/program"
cat >program.c <<'END'
#include <belay/belay.h>
#include <stdio.h>

int main(void)
{
        struct belay_config *config = NULL;

        if (belay_config_new(&config) != 0)
                return 1;
        belay_config_delete(&config);
        puts(belay_version_text());
        return 0;
}
END
cp program.c program.cc
cat >looks.c <<'END'
#include <belay/read.h>
#include <stdio.h>

int main(void)
{
        struct belay_reader *r = NULL;

        if (belay_reader_open("/nowhere/at/all", NULL, &r) == 0 || belay_error()[0] == '\0')
                return 1;
        puts(belay_version_text());
        return 0;
}
END
cp looks.c looks.cc
# It exits with the number of warnings, of which there is one if libbelay does not stand before libc.
cat >remembers.c <<'END'
#include <belay/nvm.h>
#include <stdio.h>

static int warnings;
static void count(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        (void)text;
        warnings++;
}

int main(void)
{
        int *x;
        belay_log_sink(count, NULL, BELAY_LOG_WARN);
        x = (int *)nvalloc(genid("x"), sizeof(*x), 1);
        if (!x || (++*x, nvchkptall()) != 0 || nvclose() != 0)
                return 99;
        puts(belay_version_text());
        return warnings;
}
END
cp remembers.c remembers.cc
# A program of belay.h may have functions of its own that are called as those of nvm.h.
cat >owns.c <<'END'
#include <belay/belay.h>
#include <stdio.h>

const char *genid(int x);
const char *genid(int x)
{
        return x ? belay_version_text() : "";
}

int main(void)
{
        struct belay *b;
        if (belay_open(NULL, &b) || !belay_alloc(b, "y", BELAY_U8, 1000) || belay_checkpoint(b) || belay_close(&b))
                return 1;
        puts(genid(1));
        return 0;
}
END
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.25)
project(program LANGUAGES C)
find_package(belay 0.1 REQUIRED)
add_executable(shared program.c)
target_link_libraries(shared PRIVATE belay::belay)
add_executable(static program.c)
target_link_libraries(static PRIVATE belay::belay_static)
add_executable(looks looks.c)
target_link_libraries(looks PRIVATE belay::belay-read)
add_executable(remembers remembers.c)
target_link_libraries(remembers PRIVATE belay::belay-nvm)
add_executable(remembers_static remembers.c)
target_link_libraries(remembers_static PRIVATE belay::belay-nvm_static)
END

export PKG_CONFIG_PATH=$root/lib/pkgconfig LD_LIBRARY_PATH=$root/lib
version=$(pkg-config --modversion belay)
said() { # COMMAND: it prints the version
        local text
        text=$("$@") || { echo "$1: exit status $?"; exit 1; }
        [ "$text" = "$version" ] || { echo "$1 says '$text', not '$version'"; exit 1; }
}
export BELAY_POOL=$TMPDIR/pool BELAY_TRACKER=mprotect

# pkg-config quotes its flags for a shell.
eval "cc program.c -o by_pkg_config $(pkg-config --cflags --libs belay)"
eval "c++ program.cc -o by_cxx $(pkg-config --cflags --libs belay)"
eval "cc program.c -o by_archive $(pkg-config --cflags belay) '$root/lib/libbelay.a'" \
        "$(pkg-config --static --libs-only-other belay)"
eval "cc looks.c -o looks_by_pkg_config $(pkg-config --cflags --libs belay-read)"
eval "c++ looks.cc -o looks_by_cxx $(pkg-config --cflags --libs belay-read)"
eval "cc remembers.c -o remembers_by_pkg_config $(pkg-config --cflags --libs belay-nvm)"
eval "c++ remembers.cc -o remembers_by_cxx $(pkg-config --cflags --libs belay-nvm)"
eval "cc remembers.c -o remembers_by_archives $(pkg-config --cflags belay) '$root/lib/libbelay-nvm.a' '$root/lib/libbelay.a'" \
        "$(pkg-config --static --libs-only-other belay)"
eval "cc owns.c -o owns $(pkg-config --cflags --libs belay)"
eval "cc owns.c -o owns_by_archive $(pkg-config --cflags belay) '$root/lib/libbelay.a'" \
        "$(pkg-config --static --libs-only-other belay)"
said ./by_pkg_config
said ./by_cxx
said ./remembers_by_pkg_config
said ./remembers_by_cxx
said ./owns
said ./owns_by_archive
said ./looks_by_pkg_config
said ./looks_by_cxx
cmake -S . -B out -DCMAKE_PREFIX_PATH="$root" >cmake.log || { cat cmake.log; exit 1; }
cmake --build out >cmake.log || { cat cmake.log; exit 1; }
said out/shared
said out/looks
said out/remembers

unset LD_LIBRARY_PATH
said ./by_archive
said out/static
# The archive stands before nothing in libc, which is the one warning.
for program in ./remembers_by_archives out/remembers_static; do
        status=0
        $program >remembers.log || status=$?
        [ "$status" = 1 ] || { echo "$program: exit status $status"; exit 1; }
        [ "$(cat remembers.log)" = "$version" ] || { cat remembers.log; exit 1; }
done
echo "belay $version serves C, C++, pkg-config and CMake programs"
