#!/usr/bin/env python3
"""kvmtop report against perf kvm stat report on one large perf.data: time and memory, the runs interleaved.

    benches/import_perf_data.py KVMTOP [GIB] [ROUNDS]

The file is made of the recording in tests/fixtures, repeated with later times. Needs perf, zstd and GNU time.
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

FIXTURE = pathlib.Path(__file__).parents[1] / "tests/fixtures/import/perf_data/two-guests.data.zst"
SAMPLE, FINISHED_ROUND = 9, 68
TIME = 24  # of a sample's record, as perf kvm stat record writes it: identifier, thread, time
ROUND = 2000


def enlarge(source, target, size):
    data = source.read_bytes()
    offset, length = struct.unpack_from("<2Q", data, 40)
    features = struct.unpack_from("<4Q", data, 72)
    records, at = [], offset
    while at < offset + length:
        kind, _, n = struct.unpack_from("<IHH", data, at)
        records.append((kind, data[at:at + n]))
        at += n
    samples = sorted((struct.unpack_from("<Q", r, TIME)[0], r) for kind, r in records if kind == SAMPLE)
    span = samples[-1][0] - samples[0][0] + 1000
    mark = struct.pack("<IHH", FINISHED_ROUND, 0, 8)
    with open(target, "wb") as out:
        out.write(data[:offset] + b"".join(r for kind, r in records if kind not in (SAMPLE, FINISHED_ROUND)))
        repeat = 0
        while out.tell() < size:
            part = bytearray()
            for i, (time, record) in enumerate(samples):
                part += record[:TIME] + struct.pack("<Q", time + repeat * span) + record[TIME + 8:]
                if i % ROUND == ROUND - 1:
                    part += mark
            out.write(part + mark)
            repeat += 1
        end = out.tell()
        tail = bytearray(data[offset + length:])
        for i in range(sum(f.bit_count() for f in features)):
            place, = struct.unpack_from("<Q", tail, 16 * i)
            struct.pack_into("<Q", tail, 16 * i, place + end - offset - length)
        out.write(tail)
        out.seek(48)
        out.write(struct.pack("<Q", end - offset))
    return repeat * len(samples)


def run(command):
    done = subprocess.run(["/usr/bin/time", "-f", "%e %U %S %M", *command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True)
    wall, user, system, kib = map(float, done.stderr.split()[-4:])
    return wall, user + system, kib / 1024


def main():
    kvmtop = sys.argv[1]
    size = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    with tempfile.TemporaryDirectory() as folder:
        small, big = pathlib.Path(folder) / "small.data", pathlib.Path(folder) / "big.data"
        subprocess.run(["zstd", "-q", "-d", FIXTURE, "-o", small], check=True)
        events = enlarge(small, big, int(size * 2**30))
        print(f"{big.stat().st_size / 2**30:.2f} GiB, {events} events")
        commands = {"kvmtop report": [kvmtop, "report", "--json", big],
                    "perf kvm stat report": ["perf", "kvm", "-i", big, "stat", "report", "--event=vmexit"]}
        results = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                results[name].append(run(command))
        for name, runs in results.items():
            middle = [sorted(column)[len(runs) // 2] for column in zip(*runs)]
            wall, cpu, memory = middle
            print(f"{name:22} {wall:6.2f} s  {cpu:6.2f} s CPU  {memory:8.0f} MiB   (medians of {len(runs)})")


if __name__ == "__main__":
    main()
