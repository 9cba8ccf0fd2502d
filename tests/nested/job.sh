# Runs in the emulated host: one guest that does known work, watched by kvmtop and by `perf kvm stat` from before its
# birth until after its end, once with each engine, so that all three see the very same exits.
# $KVMTOP: the program. $GUEST: the test binary that can be a guest. $WORK: what its vCPUs do. $SERVICE, $USER: the
# rights that a service and a user have. $TYPES: `hidden`: the kernel's, so that `kvm_exit` is had as where a kernel has
# none. $SECOND: `beside`: a second kvmtop records the same guest. The test puts lines that set these before the script.
cd /run || exit 1
[ "$TYPES" != hidden ] || mount -t tmpfs hidden /sys/kernel/btf || exit 1

# kvmtop as it is installed: as a service of root with the perf engine, by a user with BPF.
cp "$KVMTOP" user-kvmtop && setcap "$USER" user-kvmtop || exit 1
as_user="setpriv --reuid nobody --regid nogroup --clear-groups"
# Before 5.11 BPF is charged to the limit of locked memory, 64 KiB, which a user without this right may not raise.
case $(uname -r) in 5.*)
    cp user-kvmtop limited-kvmtop && setcap "$USER" limited-kvmtop || exit 1
    $as_user ./limited-kvmtop --batch -n 1 -d 0.1 --engine bpf > /shared/limited 2>&1
    setcap "cap_sys_resource,$USER" user-kvmtop || exit 1
    ;;
esac
watch_with() {
    options="--batch --json -d 1 -n 1000 --engine $1 --no-monitor"
    # shellcheck disable=SC2086 # several words
    case $1 in
    perf) ulimit -l unlimited && exec setpriv --bounding-set "$SERVICE" "$KVMTOP" $options ;;
    bpf) exec $as_user ./user-kvmtop $options ;;
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
    if [ "$SECOND" = beside ]; then
        rm -f second
        "$KVMTOP" record second -d 1 --engine bpf --no-monitor > /shared/$engine.second-said 2>&1 &
        second=$!
        until_true grep -q 'recording into' /shared/$engine.second-said || exit 1
    fi

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
    cat /proc/$kvmtop/limits > /shared/$engine.limits
    kill -INT $kvmtop
    wait $kvmtop
    if [ "$SECOND" = beside ]; then
        kill -INT $second
        wait $second
        $KVMTOP report --json second > /shared/$engine.second 2> /shared/$engine.second-err
    fi
    for event in vmexit ioport mmio msr; do
        perf kvm -i $engine.data stat report --event=$event > /shared/$engine.$event 2>&1 < /dev/null
    done
    $KVMTOP report --json $engine.data > /shared/$engine.report 2> /shared/$engine.report-err
    cp $engine.json $engine.record /shared/
done
touch /shared/finished
