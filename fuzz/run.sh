#!/bin/sh
# Runs readers under cargo-fuzz: `sh fuzz/run.sh RUNS [READER...]`, all readers without a name. All that it writes is
# below target/fuzz: the inputs that were worth keeping in corpus/, those that failed in artifacts/, a line for each
# reader in results. SANITIZER=address looks for wrong uses of memory as well, at a third of the speed; EACH=60 ends
# each reader after 60 seconds.
set -eu
cd "$(dirname "$0")/.."
runs=${1:?usage: run.sh RUNS [READER...]}
shift
out=$PWD/target/fuzz
sanitizer=${SANITIZER:-none}
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "fuzz: this needs a nightly compiler (rustup toolchain install nightly) and cargo install cargo-fuzz" >&2
    exit 1
fi
options="--sanitizer $sanitizer --release --debug-assertions --target-dir $out --fuzz-dir fuzz"
# shellcheck disable=SC2086 # a list of options
cargo +nightly fuzz build $options
[ $# -gt 0 ] || set -- $(sed -n 's/^ *reader("\([a-z_]*\)".*/\1/p' fuzz/readers.rs)
failed=0
for reader; do
    mkdir -p "$out/corpus/$reader" "$out/seeds/$reader" "$out/artifacts/$reader"
    echo "== $reader"
    begin=$(date +%s)
    status=0
    export KVMTOP_READER="$reader" KVMTOP_FUZZ_SEEDS="$out/seeds/$reader"
    "$out/x86_64-unknown-linux-gnu/release/reader" "$out/corpus/$reader" "$out/seeds/$reader" -runs="$runs" \
        -max_total_time="${EACH:-0}" -max_len=65536 -timeout=60 -rss_limit_mb=2048 \
        -dict=fuzz/words.dict -artifact_prefix="$out/artifacts/$reader/" -print_final_stats=1 \
        >"$out/$reader.log" 2>&1 || status=$?
    done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$reader.log")
    echo "$reader: ${done:-?} inputs in $(($(date +%s) - begin)) s, status $status" | tee -a "$out/results"
    [ "$status" = 0 ] || { failed=1; tail -20 "$out/$reader.log"; }
done
exit $failed
