# Runs in the emulated host: one guest that does known work, watched by kvmtop and by `perf kvm stat` from before its
# birth until after its end, once with each engine, so that all three see the very same exits.
# $KVMTOP: the program. $GUEST: the test binary that can be a guest. $WORK: what its vCPUs do. $SERVICE, $USER: the
# rights that a service and a user have. The test puts lines that set these before the script.
cd /run || exit 1
# With two CPUs the kernel's types are hidden, so that `kvm_exit` is had as where a kernel has none.
[ "$(nproc)" = 1 ] || mount -t tmpfs hidden /sys/kernel/btf || exit 1

# kvmtop as it is installed: as a service of root with the perf engine, by a user with BPF.
cp "$KVMTOP" user-kvmtop && setcap "$USER" user-kvmtop || exit 1
watch_with() {
    options="--batch --json -d 1 -n 1000 --engine $1 --no-monitor"
    # shellcheck disable=SC2086 # several words
    case $1 in
    perf) exec setpriv --bounding-set "$SERVICE" "$KVMTOP" $options ;;
    bpf) exec setpriv --reuid nobody --regid nogroup --clear-groups ./user-kvmtop $options ;;
    esac
}

for engine in perf bpf; do
    # Debian's kernel lets no user trace at its own level, 3.
    [ $engine = perf ] || echo 2 > /proc/sys/kernel/perf_event_paranoid
    watch_with $engine > $engine.json 2> /shared/$engine.err &
    kvmtop=$!
    # perf comes second: a tracepoint calls who came first first, and what perf does at an entry (10 us in emulation)
    # would else be part of the time that kvmtop's program measures after it.
    until_true lines_above $engine.json 0 || exit 1
    # The clock that kvmtop uses, so that times can be compared; perf's own is not steady here. What perf is to run
    # starts when it records.
    rm -f recording
    perf kvm stat record -k CLOCK_MONOTONIC -a -o $engine.data -- \
        sh -c 'touch recording; exec sleep 1000' > $engine.record 2>&1 &
    perf=$!
    until_true test -e recording || exit 1

    # `said` too: what the guest before said would be taken for this one's.
    rm -f orders said && mkfifo orders && : > said
    KVMTOP_TEST_GUEST=$WORK KVMTOP_TEST_GUEST_NAMES=1 $GUEST guest_process --exact --nocapture --test-threads=1 \
        < orders > said 2> /shared/$engine.guest &
    guest=$!
    exec 3> orders
    until_true grep -q 'guest ready' said && echo go >&3 && until_true grep -q 'guest done' said || exit 1
    # What KVM counts itself shows between two readings of a guest that lives.
    seen=$(wc -l < $engine.json)
    until_true lines_above $engine.json $((seen + 4)) || exit 1
    echo end >&3
    exec 3>&-
    wait $guest

    kill -INT $perf
    wait $perf
    seen=$(wc -l < $engine.json)
    until_true lines_above $engine.json $((seen + 1)) || exit 1
    cat /proc/$kvmtop/fdinfo/* > /shared/$engine.files
    kill -INT $kvmtop
    wait $kvmtop
    for event in vmexit ioport mmio msr; do
        perf kvm -i $engine.data stat report --event=$event > /shared/$engine.$event 2>&1 < /dev/null
    done
    $KVMTOP report --json $engine.data > /shared/$engine.report 2> /shared/$engine.report-err
    cp $engine.json $engine.record /shared/
done
touch /shared/finished
