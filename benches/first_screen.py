#!/usr/bin/env python3
"""How long kvmtop takes from its start to the first full screen: in a terminal of its own, several times.

A full screen shows a guest and has drawn its last row. The guest is the one named, or else any `-name guest=` on this
host. The time counts from fork, so it includes the dynamic linker. Prints one line: best, median, worst.
"""

import argparse
import fcntl
import glob
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import termios
import time

ROWS, COLUMNS = 40, 140
PATIENCE = 10.0


def guest_names():
    """The names in the command lines of this host's QEMUs."""
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"qemu" in words[0] and b"-name" in words[:-1] and b"kvm" in b" ".join(words):
            name = words[words.index(b"-name") + 1]
            yield name.split(b",")[0].removeprefix(b"guest=")


def run(command, name):
    """Seconds to the first byte and to the first full screen."""
    size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
    start = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        # The child sets the size, so that the program never sees another one.
        fcntl.ioctl(0, termios.TIOCSWINSZ, size)
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    seen, first, full = b"", None, None
    last_row = re.compile(rb"\x1b\[%d;\d+H" % ROWS)
    try:
        while full is None and time.monotonic() - start < PATIENCE:
            if not select.select([terminal], [], [], 0.01)[0]:
                continue
            try:
                seen += os.read(terminal, 65536)
            except OSError:
                break
            now = time.monotonic() - start
            first = first or now
            # Colours stand between the letters of nothing that is one cell's style, a name least of all.
            if last_row.search(seen) and name in seen:
                full = now
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        os.close(terminal)
    return first, full


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=15)
    options.add_argument("--guest", help="name of a guest that runs here")
    options.add_argument("command", nargs="*", default=["target/release/kvmtop"])
    options = options.parse_args()
    name = options.guest.encode() if options.guest else next(guest_names(), None)
    if name is None:
        sys.exit("no guest runs here: start one, or name it with --guest")
    times = [run(options.command, name) for _ in range(options.runs)]
    if any(full is None for _, full in times):
        sys.exit(f"no full screen within {PATIENCE:.0f} s")
    for what, column in (("first byte", 0), ("first full screen", 1)):
        of = sorted(t[column] for t in times)
        middle = statistics.median(of)
        print(f"{what}: best {of[0]:.3f} s, median {middle:.3f} s, worst {of[-1]:.3f} s of {len(of)} runs")


if __name__ == "__main__":
    main()
