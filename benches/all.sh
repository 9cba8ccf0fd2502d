#!/bin/sh
# Runs what PERFORMANCE.md quotes and prints each result under the command that made it.
# usage: benches/all.sh [NAME...]   names: speed instructions tick start screen recordings perf-data texts;
#   all of them without one
# ROUNDS (9) and TICKS (8) set how long it measures. Run it as root on a machine that does nothing else.
set -eu
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-9}
ticks=${TICKS:-8}

# Prints a command, then runs it; one that fails is reported and the next one runs.
show() {
    printf '\n$ %s\n' "$*"
    "$@" || printf 'not measured: exit status %s\n' "$?"
}

# How fast a watched guest runs, by what it does.
speed() {
    perf=
    if command -v perf >/dev/null; then perf=--perf; else echo "no perf here: kvmtop alone is measured"; fi
    show cargo bench --quiet --bench guest_speed -- --rounds "$rounds" $perf
    show cargo bench --quiet --bench guest_speed -- --rounds "$rounds" $perf --vcpus 2
    show cargo bench --quiet --bench guest_speed -- --rounds "$rounds" $perf --load msr
    show cargo bench --quiet --bench guest_speed -- --rounds "$rounds" $perf --load apic --vcpus 2
}

# What an exit costs a watched guest, in instructions: in a host that QEMU emulates.
instructions() {
    perf=
    if command -v perf >/dev/null; then perf=--perf; fi
    show cargo bench --quiet --bench exit_instructions -- $perf
}

# What a tick costs, by vCPUs and by events.
tick() {
    show cargo bench --quiet --bench growth -- --ticks "$ticks"
}

# From fork to the first full screen; needs a QEMU guest with a name.
start() {
    cargo build --quiet --release --locked
    show python3 benches/first_screen.py --runs 15
}

# Size and speed of recordings.
recordings() {
    show cargo test --quiet --release --test it session_round_trip -- --ignored --nocapture --test-threads 1
}

# Drawing, and from a key to its frame.
screen() {
    show cargo bench --quiet --bench screen
}

# Reports of large and hostile texts.
texts() {
    show cargo bench --quiet --bench report_growth
}

# A perf.data of 1 GiB.
perf_data() {
    cargo build --quiet --release --locked
    show python3 benches/import_perf_data.py target/release/kvmtop
}

[ $# -gt 0 ] || set -- speed instructions tick start screen recordings perf-data texts
for name in "$@"; do
    case $name in
        speed | instructions | tick | start | screen | recordings | texts) "$name" ;;
        perf-data) perf_data ;;
        *)
            echo "benches/all.sh: no benchmark '$name':" >&2
            echo "speed, instructions, tick, start, screen, recordings, perf-data, texts" >&2
            exit 2
            ;;
    esac
done
