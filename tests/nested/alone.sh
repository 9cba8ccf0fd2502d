# Ends a job in the emulated host: runs $TESTS of the test binary $TEST, which starts $KVMTOP, without the files that
# come from outside. 9p over virtio does not outlive a suspend (net/9p/trans_virtio.c has neither freeze nor restore):
# the programs are copied into memory, all that is shared is unmounted and its driver unloaded. It is loaded
# again for what the tests said. Then the host resets: after a suspend QEMU's does not power off.
# The test puts lines that set these before the script.
set -eu
root=/run/alone/root
mkdir -p $root/run $root/dev $root/proc $root/sys
for program in /bin/sh "$TEST" "$KVMTOP"; do
    { echo "$program"; ldd "$program" | sed -n 's/.*[[:space:]]\(\/[^ ]*\) (0x.*/\1/p'; } | while read -r file; do
        mkdir -p "$root$(dirname "$file")"
        cp -L "$file" "$root$file"
    done
done
cat > $root/run/job << JOB
cd /run
export TMPDIR=/run KVMTOP_TEST_CHANGE_HOST=1 KVMTOP_TEST_LOG=/run/alone-log
$TEST --exact --nocapture --test-threads=1 $TESTS > alone-said 2>&1
echo \$? > alone-status
JOB
cat > /run/alone/rest << 'REST'
set -eu
mkdir -p /alone
mount --move /all/run /alone
for place in shared sys/kernel/debug sys/kernel/tracing sys dev proc; do umount /all/$place; done
umount /all && umount /below && umount /shared
rmmod 9p && rmmod 9pnet_virtio
root=/alone/alone/root
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount -t devtmpfs devtmpfs $root/dev
mount -t tracefs tracefs $root/sys/kernel/tracing
chroot $root /bin/sh /run/job
for module in /modules/*9pnet_virtio.ko /modules/*9p.ko; do insmod $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 shared /shared
cp $root/run/alone-* /shared/
dmesg > /shared/alone-kernel
sync
reboot -f
REST
# Whatever comes of the rest.
touch /shared/finished
exec nsenter --root=/proc/1/root --wd=/proc/1/root /bin/sh /all/run/alone/rest
