#!/bin/sh
# Prepares what boot.sh boots: a kernel of Debian's and a small initrd around `init`.
# usage: MACHINE=amd64|arm64 SUITE=bookworm prepare.sh DIR
# Fetches a kernel and busybox with apt-get (some 70 MB), once, from the first mirror known to this machine's apt that
# has this suite of Debian; apt's own configuration stays as it is. Keeps a kernel, its version and an initrd in DIR;
# installs nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
suite=${SUITE:-bookworm}
debian=${MACHINE:-amd64}
debian=${debian%-instructions}
mkdir -p "$1"
cd "$1"
if [ initrd -nt "$here/init" ] && [ initrd -nt "$here/prepare.sh" ]; then exit 0; fi
for tool in apt-get apt-cache dpkg-deb cpio gzip xz; do
    command -v "$tool" >/dev/null && continue
    echo "no $tool: the emulated host's kernel comes as a Debian package" >&2
    exit 1
done
rm -rf tree packages lists && mkdir -p tree packages lists/partial

# Lists, sources and packages of its own. Without a status file no package counts as installed.
apt="-q -oDir::State::Lists=$PWD/lists -oDir::State::status=/dev/null -oDir::Etc::sourcelist=$PWD/sources.list
    -oDir::Etc::sourceparts=- -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache= -oAPT::Sandbox::User=root
    -oAPT::Architecture=$debian -oAPT::Architectures=$debian"
# `apt-get update --print-uris` names the Release files of all sources, fetched or not.
mirrors=$(apt-get update --print-uris 2>/dev/null | sed -n "s/^'\([^']*\/\)dists\/.*/\1/p" | awk '!seen[$0]++')
kernel=
for mirror in $mirrors; do
    echo "deb $mirror $suite main" > sources.list
    # shellcheck disable=SC2086 # several words
    apt-get $apt update -qq >/dev/null 2>&1 || continue
    # shellcheck disable=SC2086 # several words
    kernel=$(apt-cache $apt depends "linux-image-$debian" 2>/dev/null |
        sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p' | head -n 1)
    [ -z "$kernel" ] || break
done
[ -n "$kernel" ] || { echo "no mirror that apt knows here has a kernel of Debian's $suite for $debian" >&2; exit 1; }
# From 7.x on an image is two packages more.
# shellcheck disable=SC2086 # several words
parts=$(apt-cache $apt depends "$kernel" | sed -n 's/.*Depends: \(linux-\(binary\|modules\)-[^ ]*\).*/\1/p')
# shellcheck disable=SC2086 # several words
(cd packages && apt-get $apt download -qq ${parts:-$kernel} busybox-static) >&2
for package in packages/*.deb; do dpkg-deb -x "$package" tree; done
rm -rf packages lists sources.list

modules=$(echo tree/lib/modules/* tree/usr/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -n 1)
basename "$modules" > version
cp "$(find tree -name 'vmlinuz*' | head -n 1)" kernel
rm -rf root && mkdir -p root/bin root/modules
cp "$(find tree -path '*bin/busybox' | head -n 1)" root/bin/
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
(cd root && find . | cpio -o -H newc 2>/dev/null | gzip -1) > initrd.part
mv initrd.part initrd
rm -rf tree root
