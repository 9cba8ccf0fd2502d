//! Where the figures of esxtop are in kvmtop: its term, the view and column here, and how they differ.

/// Terms of esxtop, by its screens: CPU, memory, disk, network.
pub const TERMS: [(&str, &str); 14] = [
    ("%USED %RUN", "CPU% of the guests; of one host CPU, without esxtop's correction for the clock frequency."),
    ("%SYS", "SYS%: the host's kernel on the guest's behalf, vhost included."),
    ("%RDY", "WAIT%: runnable without a CPU. A guest's row has its worst vCPU, not the sum of all."),
    ("%MLMTD", "Part of WAIT% where a CPU quota stops the guest; the finding quota-throttled names it."),
    ("%CSTP", "Has no counterpart: KVM does not stop vCPUs to let others catch up."),
    ("%WAIT %IDLE", "What CPU% and WAIT% leave of the interval; HLT in the view of exits is the guest's sleep."),
    ("%SWPWT", "Swapped memory in the view of memory; the wait itself is not measured."),
    ("N%L", "The share of memory on the vCPUs' own nodes, in the view of memory."),
    ("MCTLSZ SWCUR", "Balloon and swapped memory in the view of memory."),
    ("GAVG", "The mean latency of a disk in the view of disks: what the guest's requests take in QEMU and below."),
    ("DAVG KAVG", "Are not split here: QEMU counts a request as a whole."),
    ("CMDS/s", "Operations per second of a disk, reads and writes, in the view of disks."),
    ("PKTTX/s PKTRX/s", "Packets per second of a network interface, in the view of disks."),
    ("%DRPTX %DRPRX", "Drops per second of a network interface, in the view of disks."),
];
