#!/usr/bin/env python3
"""How many bytes a second a program writes to its terminal, after its first screen: kvmtop, htop, top.

    python3 benches/screen_bytes.py --size 200x50 --seconds 20 -- target/release/kvmtop
    python3 benches/screen_bytes.py --keys p -- target/release/kvmtop      # paused
"""

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time


def read_for(terminal, seconds):
    """Bytes that come within some seconds."""
    count, end = 0, time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                count += len(os.read(terminal, 65536))
            except OSError:
                break
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="200x50", help="columns and rows")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm", type=float, default=10, help="seconds before the measurement")
    parser.add_argument("--keys", default="", help="keys pressed before the measurement")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    columns, rows = (int(n) for n in args.size.split("x"))
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.environ["TERM"] = "xterm-256color"
        os.execvp(args.command[0], args.command)
    try:
        read_for(terminal, args.warm)
        os.write(terminal, args.keys.encode())
        read_for(terminal, 2)
        count = read_for(terminal, args.seconds)
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    print(f"{count / args.seconds:.0f} bytes/s  {args.size}  {' '.join(args.command)} {args.keys}")


if __name__ == "__main__":
    main()
