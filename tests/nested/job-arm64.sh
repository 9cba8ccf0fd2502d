# Runs in the emulated arm64 host: a guest that does known work, watched by kvmtop with each engine, once as it
# records, and counted by ftrace; then a guest that writes to its console a byte at a time while it is interrupted.
# $FILES: the folder of `kvmtop` and `guest` (guest-arm64.c). The test puts a line that sets it before the script.
cd /run || exit 1
cp "$FILES/kvmtop" "$FILES/guest" . || exit 1
mkdir -p /dev/pts && mount -t devpts devpts /dev/pts
tracing=/sys/kernel/tracing
export TERM=xterm-256color

said=0
# Gives the guest an order and waits until it has obeyed.
order() {
    echo "$@" >&3
    said=$((said + 1))
    until_true lines_above said $said || exit 1
}
start_guest() {
    said=0
    rm -f orders said && mkfifo orders && : > said
    ./guest < orders > said 2> guest.err &
    guest=$!
    exec 3> orders
    until_true lines_above said 0 || exit 1
    vcpu=$(grep -l 'CPU 0' /proc/$guest/task/*/comm | cut -d / -f 5)
}

echo 'hist:keys=ret,esr_ec' > $tracing/events/kvm/kvm_exit/trigger
echo 'hist:keys=gpa.hex,type' > $tracing/events/kvm/kvm_mmio/trigger
./kvmtop record recording -d 1 --engine bpf --engine-detail interrupts > record.out 2>&1 &
record=$!
./kvmtop --batch --json -d 2 -n 1000 --engine perf --engine-detail interrupts > perf.json 2> perf.err &
perf=$!
until_true grep -q 'recording into' record.out && until_true lines_above perf.json 0 || exit 1
# Waits until both have looked again.
both_look() {
    lines=$(wc -l < perf.json)
    until_true lines_above perf.json $((lines + 2)) || exit 1
}
start_guest
order go 0
# Interrupts count once the guest has been noticed.
both_look
ways=$tracing/instances/ways
mkdir $ways && echo mono > $ways/trace_clock
enable() { echo "$2" > $ways/events/$1/filter && echo 1 > $ways/events/$1/enable; }
enable kvm/kvm_irq_line 'level == 1'
enable kvm/vgic_update_irq_pending 'irq == 35 && level == 1'
enable sched/sched_waking "pid == $vcpu"
enable sched/sched_switch "next_pid == $vcpu"
enable kvm/kvm_entry "common_pid == $vcpu"
order line 30
order irqfd 30
echo 0 > $ways/tracing_on
cat $ways/trace > ways
order console 40
both_look
exec 3>&-
wait $guest
cp said done-by-guest
cat $tracing/events/kvm/kvm_exit/hist > exits
cat $tracing/events/kvm/kvm_mmio/hist > accesses
both_look
kill -INT $record $perf
wait $record $perf
./kvmtop report recording --json > report.json 2> report.err
cp perf.json ./*.err record.out report.json ways done-by-guest exits accesses /shared/

start_guest
order go 0
echo console 1000000 >&3
echo '!hist:keys=ret,esr_ec' > $tracing/events/kvm/kvm_exit/trigger
echo '!hist:keys=gpa.hex,type' > $tracing/events/kvm/kvm_mmio/trigger
# It has only just started, and boots nothing.
printf '[findings]\nstartup_guard = 0\n' > no-guard
./kvmtop check --config no-guard --duration 10s --json > check.json 2> check.err
timeout 60 ./guest guest- "$(printf '\r')" 'spi 3' q ./kvmtop -d 1 > screen 2> screen.err
cp check.json check.err screen screen.err /shared/
touch /shared/finished
