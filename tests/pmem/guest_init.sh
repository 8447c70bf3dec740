#!/bin/busybox sh
# Process 1 of the guest. Mounts the persistent memory for direct access and runs the program on it.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev

# In whatever order they depend on each other.
left=$(echo /modules/*.ko)
for pass in 1 2 3 4 5 6; do
        failed=
        for module in $left; do
                $b insmod "$module" 2>/dev/null || failed="$failed $module"
        done
        left=$failed
done
for wait in 1 2 3 4 5 6 7 8 9 10; do
        [ -e /dev/pmem0 ] && break
        $b sleep 1
done

arguments=$($b sed -n 's/.*guest_arguments=\([^ ]*\).*/\1/p' /proc/cmdline | $b tr , ' ')
if $b mount -t ext4 -o dax=always /dev/pmem0 /mnt; then
        # shellcheck disable=SC2086
        /bin/pmem_guest /mnt/pool $arguments 2>&1
        echo "guest: exit $?"
        $b umount /mnt
else
        echo "guest: no direct access"
fi
$b poweroff -f
