# What jobs share.

# Waits until a command succeeds; the emulated host is slow and this machine may be busy.
until_true() {
    for _ in $(seq 600); do
        if "$@" > /dev/null 2>&1; then return 0; fi
        sleep 0.2
    done
    echo "gave up waiting for: $*" >&2
    return 1
}
lines_above() { [ "$(wc -l < "$1")" -gt "$2" ]; }

