#!/usr/bin/env python3
"""Prints the exits of a recording (docs/session-format.md): guest, thread, instruction set, reason, count."""

import struct
import sys
import zlib

import msgpack
import zstandard


def frames(data):
    at = 16
    while at + 8 <= len(data):
        word, crc = struct.unpack_from("<II", data, at)
        payload = data[at + 8 : at + 8 + (word >> 8)]
        if zlib.crc32(data[at : at + 4] + payload) != crc:
            sys.exit(f"damaged or cut at byte {at}")
        yield word & 0xFF, payload
        at += 8 + len(payload)


data = open(sys.argv[1], "rb").read()
if data[:12] != b"\x89KVMTOP\n\x02\0\0\0" or struct.pack("<I", zlib.crc32(data[:12])) != data[12:16]:
    sys.exit("not a recording of schema 2")
exits = {}
for kind, payload in frames(data):
    if kind == 2:
        stream, guests, payload = zstandard.ZstdDecompressor().decompressobj(), [], payload[9:]
    if kind in (2, 3):
        maps = msgpack.Unpacker(strict_map_key=False)
        maps.feed(stream.decompress(payload[12:]))
        facts, sample = maps
        guests += facts["new_guests"]
        for number, domain in zip(facts["guests"], sample["domains"]):
            for thread in domain["threads"]:
                for exit in thread["events"]["exits"]:
                    key = guests[number]["name"]["value"], thread["tid"], exit["isa"], exit["code"]
                    exits[key] = exit["time"]["count"]
for key, count in sorted(exits.items()):
    print(*key, count)
