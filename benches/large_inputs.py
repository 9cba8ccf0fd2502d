#!/usr/bin/env python3
"""kvmtop report on 100 MB of each kind of input: CPU time and most resident memory.

    benches/large_inputs.py KVMTOP [MB] [KIND...]

A text that is no trace is refused beyond 32 MiB: those kinds are measured at 31 MiB too.
"""
import io
import os
import pathlib
import random
import resource
import subprocess
import sys
import tarfile
import tempfile

from import_perf_data import FIXTURE, enlarge

EXITS = ("Analyze events for all VMs, all VCPUs:\n\n   VM-EXIT    Samples  Samples%     Time%    Min Time    Max Time"
         "         Avg time\n")
GUEST = "<domain type='kvm'><name>g{i}</name><vcpu>2</vcpu><os><type machine='q35'>hvm</type></os></domain>\n"
EXIT = " CPU 0/KVM-{tid} [000] {t:.6f}: kvm_exit: vcpu {vcpu} reason {reason} rip 0x1 info 0 0\n"
ENTRY = " CPU 0/KVM-{tid} [000] {t:.6f}: kvm_entry: vcpu {vcpu}\n"


def trace(tid, reason, access=None):
    def line(i):
        t, tid_ = 10 + i * 20e-6, tid(i)
        text = EXIT.format(tid=tid_, t=t, vcpu=0, reason=reason(i))
        if access:
            text += f" CPU 0/KVM-{tid_} [000] {t + 1e-6:.6f}: kvm_pio: {access(i)}\n"
        return text + ENTRY.format(tid=tid_, t=t + 9e-6, vcpu=0)
    return line


def row(i):
    return f"  REASON_{i}   {700 + i}    0.10%     0.10%      1.00us     90.00us      9.00us ( +-   1.00% )\n"


PORT = "pio_read at {:#x} size 4 count 1 val 0x4"
# Name of a kind: its first lines, and its further lines by number.
TEXTS = {
    "XML": ("", lambda i: GUEST.format(i=i)),
    "XML, one line": ("<domain type='kvm'><name>a</name><description>", lambda i: "x" * 4096),
    "mtree -f": ("FlatView #0\n AS \"memory\", root: system\n Root memory region: system\n",
                 lambda i: f"  {0xc0000000 + 0x1000 * i:016x}-{0xc0000fff + 0x1000 * i:016x} (prio 0, i/o): r-{i}\n"),
    "command line": ("/usr/bin/qemu-system-x86_64 -name a -smp 2",
                     lambda i: f" -device virtio-net-pci,id=net{i},bus=pcie.{i}"),
    "command lines": ("", lambda i: f"qemu {i} /usr/bin/qemu-system-x86_64 -name guest=g{i} -machine q35 -smp 4\n"),
    "kernel log": ("",
                   lambda i: f"[{i}.654337] kvm [{i % 30000}]: vcpu0, guest rIP: 0x1 Unhandled RDMSR({i % 5000:#x})\n"),
    "table of exits": (EXITS, row),
    "lscpu -p": ("# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n", lambda i: f"{i},{i // 2},0,0,,0,0,0,0\n"),
    "lscpu -p, one line": ("# CPU", lambda i: f",C{i}"),
    "no type at all": ("", lambda i: f"line {i} of nothing\n"),
    "one line of nothing": ("", lambda i: "x" * 4096),
    "trace": ("", trace(lambda i: 7000 + i % 8, lambda i: "IO_INSTRUCTION", lambda i: PORT.format(0x608))),
    "trace, threads": ("", trace(lambda i: 7000 + i, lambda i: "HLT")),
    "trace, reasons": ("", trace(lambda i: 7000 + i % 64, lambda i: f"R_{i}")),
    "trace, ports": ("", trace(lambda i: 7000 + i % 512, lambda i: "IO_INSTRUCTION", lambda i: PORT.format(i))),
    "trace, one line": (trace(lambda i: 7000, lambda i: "HLT")(0) + "CPU 0/KVM-7000 [000] 11.0: kvm_exit: ",
                        lambda i: "x" * 4096),
}


def write_text(path, kind, size):
    head, line = TEXTS[kind]
    with open(path, "w") as out:
        out.write(head)
        n = 0
        while out.tell() < size:
            out.write("".join(line(i) for i in range(n, n + 500)))
            n += 500
        out.truncate(size)


def write_tar(path, size, names):
    with tarfile.open(path, "w") as tar:
        for i in range(size // (1 << 20)):
            info = tarfile.TarInfo(names(i))
            info.size = 1 << 20
            tar.addfile(info, io.BytesIO(random.Random(i).randbytes(1 << 20).hex().encode()[:1 << 20]))


def measure(kvmtop, path):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(write, 2)
        os.execv(kvmtop, [kvmtop, "report", "--json", "--duration", "10s", path])
    os.close(write)
    said = os.fdopen(read, errors="replace").read()
    _, status, usage = os.wait4(pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, status, said


def main():
    kvmtop = sys.argv[1]
    size = int(sys.argv[2] if len(sys.argv) > 2 else 100) * 1_000_000
    chosen = sys.argv[3:]
    kinds = [(kind, size) for kind in TEXTS]
    kinds += [(kind, 31 << 20) for kind in TEXTS if not kind.startswith("trace") and size > 32 << 20]
    kinds += [("tar", size), ("perf.data", size)]
    print("| input | MB | CPU, s | RSS, MiB | times its size | answer |\n|---|---|---|---|---|---|", flush=True)
    for kind, size in kinds:
        if chosen and kind not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "input")
            if kind == "tar":
                write_tar(path, size, lambda i: f"logs/file-{i}.txt")
            elif kind == "perf.data":
                packed, plain = os.path.join(folder, "one.zst"), pathlib.Path(folder, "one")
                subprocess.run(["zstd", "-qdf", FIXTURE, "-o", plain], check=True)
                enlarge(plain, path, size)
            else:
                write_text(path, kind, size)
            seconds, mib, status, said = measure(kvmtop, path)
            answer = "read" if status == 0 else (said.splitlines() or ["?"])[0].replace(path, "FILE")[:80]
            share = mib * (1 << 20) / size
            print(f"| {kind} | {size / 1e6:.0f} | {seconds:.2f} | {mib:.0f} | {share:.1f} | {answer} |", flush=True)


if __name__ == "__main__":
    main()
