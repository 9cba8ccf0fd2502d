#!/bin/sh
# Runs targets of cargo-fuzz: `sh fuzz/run.sh RUNS [TARGET…]`, all targets without a name. Everything that it writes is
# below target/fuzz: the inputs that were worth keeping in corpus/, those that failed in artifacts/, a line for each
# target in results. SANITIZER=address looks for wrong uses of memory as well, at a third of the speed; EACH=60 ends
# each target after so many seconds.
set -eu
cd "$(dirname "$0")/.."
runs=${1:?usage: run.sh RUNS [TARGET...]}
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
binaries=$out/x86_64-unknown-linux-gnu/release
[ $# -gt 0 ] || set -- $(sed -n 's/^ *target("\([a-z_]*\)".*/\1/p' fuzz/src/targets/mod.rs)
failed=0
for target; do
    mkdir -p "$out/corpus/$target" "$out/seeds/$target" "$out/artifacts/$target"
    echo "== $target"
    begin=$(date +%s)
    status=0
    KVMTOP_FUZZ_SEEDS=$out/seeds/$target "$binaries/$target" "$out/corpus/$target" "$out/seeds/$target" \
        -runs="$runs" -max_total_time="${EACH:-0}" -max_len=65536 -timeout=60 \
        -rss_limit_mb=2048 -dict=fuzz/words.dict -artifact_prefix="$out/artifacts/$target/" -print_final_stats=1 \
        >"$out/$target.log" 2>&1 || status=$?
    done=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$target.log")
    echo "$target: ${done:-?} inputs in $(($(date +%s) - begin)) s, status $status" | tee -a "$out/results"
    [ "$status" = 0 ] || { failed=1; tail -20 "$out/$target.log"; }
done
exit $failed
