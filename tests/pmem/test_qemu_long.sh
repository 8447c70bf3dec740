#!/bin/bash
# A pool in persistent memory, in a machine that is switched off in the midst of checkpoints and on again: what had
# returned is there, bit for bit. The guest's memory is a file, so a part of it that the guest's kernel leaves alone
# (memmap) keeps its content. timeout: 900
# builds: normal
set -eu
src=${TEST_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
bin=${TEST_BIN:-$src/build/bin}
guest=$src/build/guest
PATH=$PATH:/usr/sbin:/sbin
skip() {
        echo "$1"
        exit 77
}
command -v qemu-system-x86_64 >/dev/null || skip "qemu-system-x86_64 is not installed"
command -v busybox >/dev/null || skip "busybox is not installed"
[ -e "$guest/vmlinuz" ] || skip "no kernel for a guest: tests/pmem/fetch_guest.sh gets it"
ldconfig -p | grep -q 'libpmem2\.so\.1' || skip "libpmem2 is not installed"

seed=${TEST_SEED:-2718281828}
kills=${TEST_KILLS:-6}
echo "TEST_SEED=$seed"
RANDOM=$((seed % 32768))
dir=$(mktemp -d)
qemu=
finish() {
        [ -z "$qemu" ] || kill -9 "$qemu" 2>/dev/null || true
        rm -rf "$dir"
}
trap finish EXIT
fail() {
        echo "$1"
        tail -30 "$dir/console" 2>/dev/null || true
        exit 1
}

# What the guest boots into: busybox, modules, the program and its libraries.
make_root() {
        local root=$dir/root file
        mkdir -p "$root"/{bin,proc,sys,dev,mnt,modules,tmp}
        cp "$(command -v busybox)" "$root/bin/busybox"
        cp "$guest"/modules/*.ko "$root/modules"
        cp "$bin/progs/pmem_guest" "$root/bin"
        install -m 755 "$src/tests/pmem/guest_init.sh" "$root/init"
        pmem2=$(ldconfig -p | sed -n 's/.*libpmem2\.so\.1 .*=> //p' | head -1)
        for file in "$pmem2" $(ldd "$bin/progs/pmem_guest" "$pmem2" | sed -n 's/^[^/]*\(\/[^ :]*\) (.*/\1/p' | sort -u); do
                mkdir -p "$root$(dirname "$file")"
                cp -L "$file" "$root$file"
        done
        (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$dir/initrd"
}

# The guest's memory: 768 MiB, of which 128 MiB at 512 MiB are persistent and hold an ext4.
make_memory() {
        truncate -s 128M "$dir/ext4"
        mkfs.ext4 -q -b 4096 -F "$dir/ext4"
        truncate -s 768M "$dir/memory"
        dd if="$dir/ext4" of="$dir/memory" bs=1M seek=512 conv=notrunc,sparse status=none
        rm "$dir/ext4"
}

boot() { # ARGUMENTS OF THE PROGRAM, separated by commas
        : >"$dir/console"
        qemu-system-x86_64 -machine pc,memory-backend=memory -m 768M -accel tcg,thread=multi -cpu max -smp 2 \
                -object memory-backend-file,id=memory,size=768M,mem-path="$dir/memory",share=on \
                -nodefaults -no-reboot -display none -serial "file:$dir/console" -kernel "$guest/vmlinuz" -initrd "$dir/initrd" \
                -append "console=ttyS0 panic=-1 quiet mitigations=off memmap=128M!512M guest_arguments=$1" \
                </dev/null >"$dir/qemu.log" 2>&1 &
        qemu=$!
}

value() { # NAME: the last value that the guest said
        tr -d '\r' <"$dir/console" | sed -n "s/^guest: $1 //p" | tail -1
}

await() { # PATTERN: on the console, before the guest ends
        local ended=
        for _ in $(seq 1500); do
                grep -q "$1" "$dir/console" && return
                [ -z "$ended" ] || break
                kill -0 "$qemu" 2>/dev/null || ended=yes
                sleep 0.2
        done
        cat "$dir/qemu.log"
        fail "no '$1' on the console"
}

check_start() { # AT LEAST: the version that is there must not be older
        await "^guest: restored"
        [ "$(value media)" = "mapped, persistent memory" ] || fail "media: $(value media)"
        [ "$(value granularity)" = "cache line" ] || fail "granularity: $(value granularity)"
        [ "$(value restored)" -ge "$1" ] || fail "version $1 had returned, $(value restored) was restored"
}

make_root
make_memory
reached=0
for round in $(seq "$kills"); do
        boot "$seed,1000000"
        check_start "$reached"
        restored=$(value restored)
        await "^guest: returned $((restored + 3 + RANDOM % 5))[^0-9]"
        sleep "0.$((RANDOM % 9 + 1))"
        kill -9 "$qemu"
        wait "$qemu" 2>/dev/null || true
        reached=$(value returned) # if the line was cut off: fewer
        echo "round $round: restored $restored, switched off when $reached had returned"
done

boot "$seed,$((reached + 40))"
check_start "$reached"
await "^guest: exit"
wait "$qemu" || true
qemu=
[ "$(value exit)" = 0 ] || fail "the program in the guest failed"
[ "$(value mapping)" = synchronous ] || fail "mapping: $(value mapping)"
echo "at last: restored $(value restored), went on to $(value returned)"
echo "every version that had returned was there, after $kills times power off"
