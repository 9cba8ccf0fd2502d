#!/bin/sh
# Makes the packages of this checkout in target/packages: .deb, .rpm, a static binary and the source archive; and a .deb
# for arm64 where its cross compiler is installed.
# It says what it installs before it does so: the tools go to target/tools, the musl target into the toolchain.
set -eu
cd "$(dirname "$0")/../.."
CARGO=${CARGO:-cargo}
DEB_TOOL=3.8.0
RPM_TOOL=0.21.1

tool() {
    if [ "$(target/tools/bin/"$1" --version 2>/dev/null | grep -o '[0-9.]*$')" = "$2" ]; then return; fi
    echo "Installing $1 $2 from crates.io into target/tools" >&2
    # A packaging tool runs for a second: compiled fast rather than to be fast.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        $CARGO install "$1" --version "$2" --locked --quiet --root target/tools --target-dir target/tools/build
}
step() { printf '\n== %s\n' "$*"; }

machine=$(uname -m)
static=$machine-unknown-linux-musl
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
out=$PWD/target/packages

step "tools"
tool cargo-deb $DEB_TOOL
tool cargo-generate-rpm $RPM_TOOL
rm -rf target/tools/build
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$static" ]; then
    echo "Installing the target $static with rustup" >&2
    rustup target add "$static"
fi

step "build"
rm -rf "$out"
mkdir -p "$out"
$CARGO build --release --locked
# A static program cannot load libvirt.
$CARGO build --release --locked --no-default-features --target "$static"

step "manual pages and completions"
rm -rf target/manual
$CARGO run --locked --quiet --example manual -- target/manual

step "packages"
# Archives are the same whenever they are made from one commit. Not before: cargo would compile C code once more.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
# As Debian wants them.
gzip -9n > target/manual/changelog.gz <<EOF
kvmtop ($version) unstable; urgency=medium

  * CHANGELOG.md beside this file has the changes.

 -- The kvmtop contributors <kvmtop@localhost>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
EOF
cat LICENSE-MIT - > target/manual/copyright <<EOF

The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0. The program contains libvirt's binding for Rust, the
crates virt and virt-sys, under the GNU LGPL 2.1 (/usr/share/common-licenses/LGPL-2.1).
EOF
target/tools/bin/cargo-deb --no-build --no-strip --output "$out/"
target/tools/bin/cargo-generate-rpm --output "$out/"

name=kvmtop-$version-$machine-linux-static
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
install -Dm755 "target/$static/release/kvmtop" "$tree/$name/kvmtop"
install -m644 -t "$tree/$name" -- *.md LICENSE-*
cp -r docs target/manual/man target/manual/completions "$tree/$name/"
mkdir "$tree/$name/assets"
cp -r assets/screen.svg assets/kvmtop.toml assets/prometheus assets/grafana "$tree/$name/assets/"
install -Dm644 -t "$tree/$name" assets/packaging/kvmtop-record.service assets/packaging/kvmtop-export.service
tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$SOURCE_DATE_EPOCH" \
    -cf - "$name" | gzip -9n > "$out/$name.tar.gz"

arm64="SKIPPED made on x86-64 alone"
[ "$machine" != x86_64 ] || arm64=$(sh assets/packaging/aarch64.sh release --only-build)
if [ "${arm64#SKIPPED}" != "$arm64" ]; then
    echo "No package for arm64: ${arm64#SKIPPED }"
else
    # The same but for the program. Its libraries have the same names and versions there.
    deb=$tree/deb
    dpkg-deb -R "$out/kvmtop_${version}_amd64.deb" "$deb"
    install -m755 "$arm64" "$deb/usr/bin/kvmtop"
    size=$(du -sk --apparent-size "$deb/usr" | cut -f 1)
    sed -i "s/^Architecture: .*/Architecture: arm64/; s/^Installed-Size: .*/Installed-Size: $size/" \
        "$deb/DEBIAN/control"
    (cd "$deb" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum > DEBIAN/md5sums)
    dpkg-deb --root-owner-group -b "$deb" "$out/kvmtop_${version}_arm64.deb"
fi

if git rev-parse --git-dir > /dev/null 2>&1; then
    git archive --format=tar --prefix="kvmtop-$version/" HEAD | gzip -9n > "$out/kvmtop-$version.tar.gz"
    if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
        echo "The source archive holds the last commit; what is not committed is only in the other packages." >&2
    fi
else
    echo "No source archive: this is no git checkout" >&2
fi
(cd "$out" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
