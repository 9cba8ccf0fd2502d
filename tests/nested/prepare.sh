#!/bin/sh
# Prepares what boot.sh boots: Debian's own kernel and a small initrd around `init`.
# usage: MACHINE=amd64|arm64 prepare.sh DIR
# Fetches three packages with apt-get (some 70 MB), once; keeps a kernel and an initrd in DIR; installs nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
apt=-q
debian=amd64
mkdir -p "$1"
cd "$1"
if [ initrd -nt "$here/init" ] && [ initrd -nt "$here/prepare.sh" ]; then exit 0; fi
for tool in apt-get apt-cache dpkg-deb gzip; do
    command -v "$tool" >/dev/null && continue
    echo "no $tool: the emulated host's kernel comes as a Debian package" >&2
    exit 1
done
rm -rf tree packages own lists && mkdir -p tree packages own lists/partial
if [ "${MACHINE:-amd64}" = arm64 ]; then
    debian=arm64
    # Lists of its own: this machine's apt knows packages of this machine's architecture.
    apt="-q -oAPT::Architecture=arm64 -oAPT::Architectures=arm64 -oDir::State::Lists=$PWD/lists"
    # shellcheck disable=SC2086 # several words
    apt-get $apt update -qq >&2 || { echo "apt-get fetches no lists of arm64 packages" >&2; exit 1; }
fi
# shellcheck disable=SC2086 # several words
kernel=$(apt-cache $apt depends "linux-image-$debian" 2>/dev/null |
    sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -n 1)
[ -n "$kernel" ] || { echo "apt knows no linux-image-$debian here" >&2; exit 1; }
# shellcheck disable=SC2086 # several words
(cd packages && apt-get $apt download -qq "$kernel" busybox-static) >&2
# This machine's packs the initrd.
(cd own && apt-get download -qq busybox-static) >&2
for package in packages/*.deb; do dpkg-deb -x "$package" tree; done
dpkg-deb -x own/*.deb own
rm -rf packages lists

modules=$(echo tree/lib/modules/* tree/usr/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -n 1)
cp tree/boot/vmlinuz-* kernel
rm -rf root && mkdir -p root/bin root/modules
cp "$(find tree -path '*bin/busybox' | head -n 1)" root/bin/
cpio="$PWD/$(find own -path '*bin/busybox' | head -n 1) cpio"
cp "$here/init" root/init
chmod +x root/init

# Copies a module behind those that it depends on, as the module itself says, so that the order of names is the order of
# loading.
count=100
have=
add() {
    case " $have " in *" $1 "*) return ;; esac
    have="$have $1"
    file=$(find "$modules" -name "$(echo "$1" | sed 's/[-_]/[-_]/g').ko*" | head -n 1)
    [ -n "$file" ] || return 0 # built into the kernel
    case $file in
        *.xz) xz -dc "$file" ;;
        *.zst) zstd -dqc "$file" ;;
        *) cat "$file" ;;
    esac > "module-$1"
    for needed in $(tr '\0' '\n' < "module-$1" | sed -n 's/^depends=//p' | tr ',' ' '); do add "$needed"; done
    mv "module-$1" "root/modules/$count-$1.ko"
    count=$((count + 1))
}
for name in virtio_pci 9pnet_virtio 9p overlay loop dm_delay kvm_amd; do add "$name"; done
(cd root && find . | $cpio -o -H newc 2>/dev/null | gzip -1) > initrd.part
mv initrd.part initrd
rm -rf tree root own
