#!/bin/sh
# Installs the named Debian or Ubuntu packages that are missing, saying so first.
# usage: packages.sh NAME...              all of them
#        packages.sh --first-of NAME...   the first that this distribution has
#        packages.sh --idle UNIT NAME     its service is masked, so that nothing starts it
set -eu
unit=
installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "packages.sh: this is neither Debian nor Ubuntu; needed are: $*" >&2
    exit 0
fi
if [ "${1:-}" = --first-of ]; then
    shift
    for p in "$@"; do if installed "$p"; then exit 0; fi; done
    first_of=1
elif [ "${1:-}" = --idle ]; then
    unit=$2
    shift 2
    first_of=0
else
    first_of=0
fi
missing=
for p in "$@"; do installed "$p" || missing="$missing $p"; done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then as_root=
elif command -v sudo >/dev/null; then as_root=sudo
else
    echo "packages.sh: run as root, or install these yourself:$missing" >&2
    exit 1
fi
echo "Installing the missing system packages:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# Debian starts a service when its package comes, unless it is masked.
if [ -n "$unit" ] && [ ! -e "/etc/systemd/system/$unit" ] && [ ! -L "/etc/systemd/system/$unit" ]; then
    $as_root mkdir -p /etc/systemd/system
    $as_root ln -s /dev/null "/etc/systemd/system/$unit"
    echo "It is for tests alone: $unit stays masked (systemctl unmask $unit)" >&2
fi
for p in $missing; do
    if [ "$first_of" = 1 ]; then
        # A package of another distribution is no error here.
        if $as_root apt-get install -y -qq --no-install-recommends "$p" >/dev/null 2>&1; then exit 0; fi
    else
        $as_root apt-get install -y -qq --no-install-recommends "$p" >/dev/null
    fi
done
if [ "$first_of" = 1 ]; then echo "packages.sh: none of these is to be had:$missing" >&2; fi
