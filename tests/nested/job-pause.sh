# Runs in the emulated host: a busy QEMU guest is stopped for a while, by SIGSTOP and by its monitor, and goes on;
# kvmtop watches with both engines.
# $KVMTOP: the program. $DISK: the guest's boot sector. The test puts a line that sets them before the script.
cd /run || exit 1
for engine in bpf perf; do
    $KVMTOP --batch --json -d 1 -n 1000 --engine $engine --no-monitor > $engine.json 2> /shared/$engine.err &
    eval $engine=$!
done
until_true lines_above bpf.json 0 && until_true lines_above perf.json 0 || exit 1
mkfifo orders
qemu-system-x86_64 -name busy,debug-threads=on -accel kvm -m 32 -display none -nodefaults \
    -drive file="$DISK",if=virtio,format=raw,snapshot=on -monitor stdio < orders > monitor 2>&1 &
guest=$!
exec 3> orders
until_true grep -q 'kvm:\|"reason"' bpf.json && until_true grep -q '"reason"' perf.json || exit 1
# Lets it run for some intervals.
goes_on() {
    seen=$(wc -l < bpf.json)
    until_true lines_above bpf.json $((seen + 4)) || exit 1
}
goes_on
kill -STOP $guest && sleep 12 && kill -CONT $guest
goes_on
echo stop >&3 && sleep 12 && echo cont >&3
goes_on
cp bpf.json perf.json monitor /shared/
kill -INT $bpf $perf
wait $bpf $perf
kill $guest
touch /shared/finished
