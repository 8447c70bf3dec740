#!/bin/bash
# Gets what the guest of test_qemu_long.sh boots, into build/guest: Debian's kernel, as vmlinuz, and the few modules that
# it needs. Nothing is installed. 70 MB are fetched, 10 MB stay.
set -eu
cd "$(dirname "$0")/../.."
guest=$PWD/build/guest
[ -e "$guest/vmlinuz" ] && exit 0
[ "$(uname -m)" = x86_64 ] || exit 1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -1)
[ -n "$package" ]
echo "fetching: $package"
apt-get -q download "$package" >log 2>&1 || {
        tail -5 log >&2
        exit 1
}
dpkg --fsys-tarfile ./*.deb | tar -x --wildcards './boot/vmlinuz-*' './lib/modules/*/kernel/drivers/nvdimm/*' \
        './lib/modules/*/kernel/drivers/dax/*' './lib/modules/*/kernel/fs/ext4/*' './lib/modules/*/kernel/fs/jbd2/*' \
        './lib/modules/*/kernel/fs/mbcache*' './lib/modules/*/kernel/lib/crc16*' './lib/modules/*/kernel/crypto/crc32c_generic*' \
        './lib/modules/*/kernel/lib/libcrc32c*'
mkdir -p "$guest/modules"
find lib/modules -name '*.ko' -exec cp {} "$guest/modules" \;
find lib/modules -name '*.ko.xz' | while read -r packed; do
        xz -dc "$packed" >"$guest/modules/$(basename "$packed" .xz)"
done
cp boot/vmlinuz-* "$guest/vmlinuz"
