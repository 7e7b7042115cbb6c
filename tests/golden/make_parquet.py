#!/usr/bin/env python3
"""make_parquet.py - parquet and Arrow files for tests/golden/parquet, each with its rows as JSON
lines.

NAME.parquet has the rows of EXPECT.jsonl; index.json says which, index_arrow.json of NAME.arrow.  Rows are spelt as
formats/records/parquet/text.h has it.  What pyarrow does not write (lists of older writers, two
gzip members, Hadoop's LZ4 frames) is put together here byte by byte; pyarrow reads it back.
Last made with pyarrow 26.0.1.
"""
import base64
import datetime as dt
import decimal
import gzip
import json
import math
import os
import random
import struct
import sys
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

OUT = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/parquet"
R = random.Random(7)
WORDS = "the a of model loss été 你好 😀 learn \"quoted\" x,y tab\there line\nbreak don't \\ नम".split(" ")
index = {}
index_arrow = {}


def text(n):
    return " ".join(R.choice(WORDS) for _ in range(n))


def spell(x):
    if isinstance(x, dict):
        return {k: spell(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [spell(v) for v in x]
    if isinstance(x, bytes):
        return {"b64": base64.b64encode(x).decode()}
    if isinstance(x, (dt.datetime, dt.date, dt.time)):
        return x.isoformat()
    if isinstance(x, decimal.Decimal):
        return format(x, "f")
    if isinstance(x, uuid.UUID):
        return str(x)
    if isinstance(x, float) and not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    if isinstance(x, int) and x >= 1 << 63:
        return str(x)
    return x


def rows_file(name, rows):
    with open(os.path.join(OUT, name + ".jsonl"), "w", encoding="utf-8") as f:
        for r in rows:
            f.write(json.dumps(spell(r), ensure_ascii=False) + "\n")


def put(name, table, expect=None, rows=None, **options):
    pq.write_table(table, os.path.join(OUT, name + ".parquet"), **options)
    if expect is None:
        expect = name
        rows_file(name, rows if rows is not None else table.to_pylist())
    index[name] = expect


def flat_files():
    n = 60
    t = pa.table({
        "id": pa.array(range(n), pa.int64()),
        "i32": pa.array([None if i % 7 == 0 else R.randint(-2**31, 2**31 - 1) for i in range(n)], pa.int32()),
        "text": pa.array([None if i % 11 == 3 else text(R.randint(0, 12)) for i in range(n)]),
        "label": pa.array([R.choice(["pos", "neg", None]) for _ in range(n)]),
        "f32": pa.array([None if i % 13 == 0 else R.gauss(0, 3) for i in range(n)], pa.float32()),
        "f64": pa.array([[math.nan, math.inf, -math.inf, -0.0][i] if i < 4 else R.random() * 10**R.randint(-300, 300)
                         for i in range(n)]),
        "ok": pa.array([None if i % 17 == 0 else bool(R.getrandbits(1)) for i in range(n)]),
        "u8": pa.array([R.randint(0, 255) for _ in range(n)], pa.uint8()),
        "i16": pa.array([R.randint(-2**15, 2**15 - 1) for _ in range(n)], pa.int16()),
        "u32": pa.array([R.getrandbits(32) for _ in range(n)], pa.uint32()),
        "u64": pa.array([R.getrandbits(64) for _ in range(n)], pa.uint64()),
        "raw": pa.array([bytes(R.randrange(256) for _ in range(R.randint(0, 6))) for _ in range(n)], pa.binary()),
        "five": pa.array([None if i % 10 == 1 else bytes(R.randrange(4) for _ in range(5)) for i in range(n)],
                         pa.binary(5)),
    })
    put("flat", t, compression="snappy")
    for c in ("zstd", "gzip", "none", "lz4", "brotli"):
        put("flat-" + c, t, "flat", compression=c)
    put("flat-plain", t, "flat", use_dictionary=False, compression="none")
    put("flat-v2", t, "flat", data_page_version="2.0", compression="snappy")
    put("flat-v2-zstd-plain", t, "flat", data_page_version="2.0", compression="zstd", use_dictionary=False)
    put("flat-groups", t, "flat", row_group_size=13, compression="zstd")
    put("flat-smallpages", t, "flat", data_page_size=100, write_batch_size=4, compression="none")
    put("flat-fallback", t, "flat", dictionary_pagesize_limit=100, data_page_size=100, write_batch_size=4)
    put("flat-crc", t, "flat", write_page_checksum=True, write_page_index=True, compression="zstd")
    put("flat-delta", t, "flat", use_dictionary=False, compression="zstd", data_page_version="2.0", column_encoding={
        "id": "DELTA_BINARY_PACKED", "i32": "DELTA_BINARY_PACKED", "i16": "DELTA_BINARY_PACKED",
        "u32": "DELTA_BINARY_PACKED", "u64": "DELTA_BINARY_PACKED", "text": "DELTA_LENGTH_BYTE_ARRAY",
        "label": "DELTA_BYTE_ARRAY", "raw": "DELTA_BYTE_ARRAY", "five": "DELTA_BYTE_ARRAY",
        "f32": "BYTE_STREAM_SPLIT", "f64": "BYTE_STREAM_SPLIT", "ok": "RLE"})
    put("flat-split", t, "flat", use_dictionary=False, compression="none", column_encoding={
        k: "BYTE_STREAM_SPLIT" for k in ("id", "i32", "u32", "u64", "five", "f32", "f64")})
    put("empty", t.slice(0, 0))
    n = 700         # several blocks and miniblocks of differences, runs of every length
    put("long-delta", pa.table({
        "a": pa.array([i * i for i in range(n)], pa.int64()),
        "b": pa.array([None if i % 5 == 0 else R.choice([-2**63, 2**63 - 1, 0, i]) for i in range(n)], pa.int64()),
        "c": pa.array(["row %06d %s" % (i // 7, "x" * (i % 3)) for i in range(n)]),
        "d": pa.array([i < 300 for i in range(n)]),
        "e": pa.array([i // 100 for i in range(n)], pa.int32()),
    }), use_dictionary=False, compression="gzip", data_page_version="2.0", column_encoding={
        "a": "DELTA_BINARY_PACKED", "b": "DELTA_BINARY_PACKED", "c": "DELTA_BYTE_ARRAY", "d": "RLE",
        "e": "DELTA_BINARY_PACKED"})
    put("runs", pa.table({
        "word": pa.array(["one" if i % 90 < 80 else R.choice(["two", "three", None]) for i in range(n)]),
        "none": pa.nulls(n), "void": pa.array([None] * n, pa.string()),
        "flag": pa.array([i % 3 == 0 for i in range(n)]),
    }), compression="snappy")
    put("long-text", pa.table({"text": [text(300) for _ in range(8)] + ["z" * 70000, ""]}), row_group_size=4)


def typed_file():
    day, n = dt.date(2024, 2, 29), 8
    stamps = [dt.datetime(1677, 9, 22, 1, 2, 3, 4), dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
              dt.datetime(1970, 1, 1), dt.datetime(2024, 2, 29, 12, 30), None,
              dt.datetime(2000, 1, 1, 0, 0, 0, 1000), dt.datetime(2262, 4, 11, 0, 0, 0), dt.datetime(2038, 1, 19, 3, 14, 8)]
    milli = [s and s.replace(microsecond=s.microsecond // 1000 * 1000) for s in stamps]
    nanos = [0, -1, 1, 1700000000123456789, None, -1700000000123456789, 1000, 999]
    names = ["1970-01-01T00:00:00", "1969-12-31T23:59:59.999999999", "1970-01-01T00:00:00.000000001",
             "2023-11-14T22:13:20.123456789", None, "1916-02-18T01:46:39.876543211", "1970-01-01T00:00:00.000001",
             "1970-01-01T00:00:00.000000999"]
    times = [dt.time(0, 0), dt.time(23, 59, 59, 999000), None, dt.time(12, 30, 1), dt.time(1, 2, 3, 4000)] + [dt.time(5)] * 3
    D = decimal.Decimal
    small = [D("0.00"), D("-0.01"), D("12345.67"), None, D("-9999999.99"), D("1.10"), D("-1.00"), D("0.99")]
    large = [D(0).scaleb(-10), D("-1e-10"), D("1234567890123456789012345678.0123456789"), None, D("-1"), D("0.5"), D("1e27"), D(7)]
    huge = [D("-" + "9" * 60 + ".5000"), D("1" + "0" * 59), None, D(1), D(-1), D("0.0001"), D(3), D("-0.0001")]
    ids = [uuid.UUID(int=R.getrandbits(128)) for _ in range(n)]
    columns = {
        "day": (pa.date32(), [day, dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1970, 1, 1), dt.date(1969, 12, 31),
                              dt.date(1900, 3, 1), dt.date(2000, 2, 29)], None),
        "us": (pa.timestamp("us"), stamps, None), "ms": (pa.timestamp("ms"), milli, None),
        "utc": (pa.timestamp("us", tz="UTC"), [s and s.replace(tzinfo=dt.timezone.utc) for s in stamps], None),
        "ns": (pa.timestamp("ns"), nanos, names),
        "time_ms": (pa.time32("ms"), times, None), "time_us": (pa.time64("us"), times, None),
        "time_ns": (pa.time64("ns"), [1, None, 86399999999999, 0, 1000, 5, 6, 7],
                    ["00:00:00.000000001", None, "23:59:59.999999999", "00:00:00", "00:00:00.000001",
                     "00:00:00.000000005", "00:00:00.000000006", "00:00:00.000000007"]),
        "dec9": (pa.decimal128(9, 2), small, None), "dec38": (pa.decimal128(38, 10), large, None),
        "dec76": (pa.decimal256(70, 4), huge, None), "dec18": (pa.decimal128(18, 0), [D(10**17), D(-1), None] + [D(0)] * 5, None),
        "half": (pa.float16(), [0.5, -0.0, 65504.0, None, math.inf, math.nan, 6e-8, 1.0], None),
        "uuid": (pa.uuid(), ids, None), "big": (pa.large_string(), [text(2) for _ in range(n)], None),
        "blob": (pa.large_binary(), [bytes([i] * i) for i in range(n)], None),
        "kind": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None, "a", "c", "b", "a", "a"], None),
    }
    t = pa.table({k: pa.array(v, ty) for k, (ty, v, _) in columns.items()})
    shown = [names_ if names_ is not None else t[k].to_pylist() for k, (ty, v, names_) in columns.items()]
    rows = [dict(zip(columns, r)) for r in zip(*shown)]
    put("types", t, rows=rows, compression="zstd")
    put("types-ints", t, "types", compression="none", use_dictionary=False, store_decimal_as_integer=True)
    put("int96", pa.table({"t": pa.array(nanos, pa.timestamp("ns"))}), rows=[{"t": x} for x in names],
        use_deprecated_int96_timestamps=True)


def nested_files():
    n = 40

    def strings():
        return None if R.random() < .1 else [None if R.random() < .15 else text(R.randint(0, 3))
                                             for _ in range(R.choice([0, 0, 1, 2, 5]))]
    leaf = pa.struct([("role", pa.string()), ("content", pa.string())])
    t = pa.table({
        "tags": pa.array([strings() for _ in range(n)], pa.list_(pa.string())),
        "ll": pa.array([None if R.random() < .1 else
                        [None if R.random() < .1 else [R.choice([1, 2, None]) for _ in range(R.randint(0, 2))]
                         for _ in range(R.randint(0, 3))] for _ in range(n)], pa.list_(pa.list_(pa.int64()))),
        "m": pa.array([None if i % 8 == 0 else [(k, None if R.random() < .2 else R.randint(0, 9))
                                                for k in R.sample("abcdef", R.randint(0, 3))] for i in range(n)],
                      pa.map_(pa.string(), pa.int64())),
        "fixed": pa.array([None if i % 9 == 2 else [float(i), 2.0, 3.0] for i in range(n)], pa.list_(pa.float32(), 3)),
        "st": pa.array([None if i % 9 == 0 else {"a": None if i % 5 == 0 else i, "b": {"c": text(1), "d": [i, None]}}
                        for i in range(n)], pa.struct([("a", pa.int32()), ("b", pa.struct([
                            ("c", pa.string()), ("d", pa.list_(pa.int32()))]))])),
        "msgs": pa.array([[{"role": R.choice(["user", "assistant"]), "content": text(4)} for _ in range(R.randint(1, 3))]
                          for _ in range(n)], pa.list_(leaf)),
        "answers": pa.array([{"text": [text(1)] * (i % 3), "answer_start": [i] * (i % 3)} for i in range(n)],
                            pa.struct([("text", pa.list_(pa.string())), ("answer_start", pa.list_(pa.int32()))])),
        "deep": pa.array([None if i % 6 == 1 else [{"x": [[{"y": i}], [], None]}] * (i % 3) for i in range(n)],
                         pa.list_(pa.struct([("x", pa.list_(pa.list_(pa.struct([("y", pa.int8())]))))]))),
        "mm": pa.array([[("k", [("z", [i, i + 1])])] if i % 2 else [] for i in range(n)],
                       pa.map_(pa.string(), pa.map_(pa.string(), pa.list_(pa.int16())))),
        "last": pa.array(range(n)),
    })
    put("nested", t)
    put("nested-v2", t, "nested", data_page_version="2.0", compression="zstd")
    put("nested-groups", t, "nested", row_group_size=9, data_page_size=40, write_batch_size=2, compression="zstd")
    put("nested-item", t, "nested", use_compliant_nested_type=False, compression="zstd")


def instruction_file():
    plain = [w for w in WORDS if "\n" not in w and "\t" not in w]
    put("instructions", pa.Table.from_pylist([
        {"instruction": " ".join(R.choices(plain, k=6)), "input": "" if i % 3 else " ".join(R.choices(plain, k=4)),
         "output": " ".join(R.choices(plain, k=8)), "n": i} for i in range(40)]), row_group_size=17, compression="zstd")


# --- Arrow streams and files of the same tables

def arrow_files():
    def read(name):
        return pq.ParquetFile(os.path.join(OUT, name + ".parquet")).read()

    def put_arrow(name, table, expect, chunk, new=pa.ipc.new_stream):
        path = os.path.join(OUT, name + ".arrow")
        with new(path, table.schema) as w:
            w.write_table(table, max_chunksize=chunk)
        index_arrow[name] = expect
    for name in ("flat", "nested", "types", "empty", "runs"):
        put_arrow(name, read(name), name, 17)
    put_arrow("nested-file", read("nested").slice(0, 40), "nested", 1000, pa.ipc.new_file)
    # Slices: offsets and validity bits that do not begin at 0.
    t = read("nested")
    put_arrow("nested-slices", pa.concat_tables([t.slice(0, 3), t.slice(3, 13), t.slice(16)]), "nested", 1000)
    n = 30
    coded = pa.table({
        "k": pa.array(["a", "b", None, "long text", "a"] * 6).dictionary_encode(),
        "list": pa.array([[["x", "y"][i % 2]] * (i % 3) for i in range(n)], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        "large": pa.array([[text(2)] * (i % 2) for i in range(n)], pa.large_list(pa.large_string())),
        "date64": pa.array([dt.date(1969, 12, 31), dt.date(2024, 2, 29), None] * 10, pa.date64()),
        "s": pa.array([dt.datetime(2020, 1, 2, 3, 4, 5), None, dt.datetime(1960, 1, 1)] * 10, pa.timestamp("s")),
        "took": pa.array([i * 1000 for i in range(n)], pa.int64()).cast(pa.duration("us")),
    })
    rows_file("coded", [dict(r, took=i * 1000) for i, r in enumerate(coded.to_pylist())])
    put_arrow("coded", coded, "coded", 11)
    with pa.ipc.new_stream(os.path.join(OUT, "packed.arrow"), coded.schema,
                           options=pa.ipc.IpcWriteOptions(compression="lz4")) as w:
        w.write_table(coded)            # what is refused by name
    with open(os.path.join(OUT, "index_arrow.json"), "w") as f:
        json.dump(index_arrow, f, indent=1)
        f.write("\n")


# --- by hand

def varint(v):
    b = b""
    while v > 127:
        b, v = b + bytes([v & 127 | 128]), v >> 7
    return b + bytes([v])


def zigzag(v):
    return varint(v * 2 if v >= 0 else -v * 2 - 1)


class I64(int):
    """An integer that thrift has as an i64."""


class Struct:
    """A thrift struct in the compact protocol."""
    def __init__(self, **fields):
        self.b, self.last = b"", 0
        for k, v in sorted(((int(k[1:]), v) for k, v in fields.items() if v is not None)):
            kind = 1 if v is True else 2 if v is False else 5 if isinstance(v, int) else 8 if isinstance(v, bytes) else \
                9 if isinstance(v, list) else 12
            if isinstance(v, I64):
                kind = 6
            assert 0 < k - self.last < 16
            self.b += bytes([(k - self.last) << 4 | kind])
            self.last = k
            if kind in (5, 6):
                self.b += zigzag(v)
            elif kind == 8:
                self.b += varint(len(v)) + v
            elif kind == 9:
                element = 5 if v and isinstance(v[0], int) else 8 if v and isinstance(v[0], bytes) else 12
                self.b += bytes([len(v) << 4 | element]) if len(v) < 15 else bytes([0xf0 | element]) + varint(len(v))
                for x in v:
                    self.b += zigzag(x) if element == 5 else varint(len(x)) + x if element == 8 else x.bytes()
            elif kind == 12:
                self.b += v.bytes()

    def bytes(self):
        return self.b + b"\0"


def runs(levels, most):
    """Levels as runs of one."""
    if most == 0:
        return b""
    b = b"".join(varint(2) + bytes([v]) for v in levels)
    return struct.pack("<I", len(b)) + b


def hand_made(name, schema, columns, rows, pack=lambda b: b, codec=0, refused=False):
    """columns: (path, type, max rep, max def, rep levels, def levels, values or their bytes)."""
    out, chunks = b"PAR1", []
    for path, kind, max_rep, max_def, reps, defs, values in columns:
        body = runs(reps, max_rep) + runs(defs, max_def)
        if isinstance(values, bytes):
            body, values = body + values, range(len(values) // 4)
        else:
            body += b"".join(struct.pack("<i", v) if kind == 1 else struct.pack("<I", len(v)) + v for v in values)
        packed = pack(body)
        page = Struct(f1=0, f2=len(body), f3=len(packed),
                      f5=Struct(f1=len(defs) if max_def else len(values), f2=0, f3=3, f4=3)).bytes() + packed
        meta = Struct(f1=kind, f2=[0], f3=[p.encode() for p in path], f4=codec,
                      f5=I64(len(defs) if max_def else len(values)), f6=I64(len(page)), f7=I64(len(page)),
                      f9=I64(len(out)))
        chunks.append(Struct(f2=I64(len(out)), f3=meta))
        out += page
    footer = Struct(f1=1, f2=schema, f3=I64(rows),
                    f4=[Struct(f1=chunks, f2=I64(len(out) - 4), f3=I64(rows))], f6=b"make_parquet").bytes()
    path = os.path.join(OUT, name + ".parquet")
    with open(path, "wb") as f:
        f.write(out + footer + struct.pack("<I", len(footer)) + b"PAR1")
    if refused:
        return
    index[name] = name
    rows_file(name, pq.ParquetFile(path).read().to_pylist())


def node(name, repetition=0, kind=None, children=None, converted=None):
    return Struct(f1=kind, f3=repetition, f4=name.encode(), f5=children, f6=converted)


def old_files():
    INT, TEXT, OPT, REP, LIST, MAP = 1, 6, 1, 2, 3, 1
    # a repeated column; a list of two levels; one of structs; one named array; one named _tuple.
    hand_made("old-lists", [
        node("schema", children=5),
        node("bare", REP, INT),
        node("two", OPT, children=1, converted=LIST), node("element", REP, TEXT, converted=0),
        node("pairs", OPT, children=1, converted=LIST), node("bag", REP, children=2), node("a", 0, INT), node("b", OPT, INT),
        node("arr", OPT, children=1, converted=LIST), node("array", REP, children=1), node("x", 0, INT),
        node("tup", 0, children=1, converted=LIST), node("tup_tuple", REP, children=1), node("y", OPT, INT),
    ], [
        (["bare"], INT, 1, 1, [0, 0, 1, 1, 0], [0, 1, 1, 1, 1], [1, 2, 3, 4]),
        (["two", "element"], TEXT, 1, 2, [0, 0, 0, 1], [0, 1, 2, 2], [b"p", "é".encode()]),
        (["pairs", "bag", "a"], INT, 1, 2, [0, 1, 0, 0], [2, 2, 0, 1], [10, 11]),
        (["pairs", "bag", "b"], INT, 1, 3, [0, 1, 0, 0], [3, 2, 0, 1], [20]),
        (["arr", "array", "x"], INT, 1, 2, [0, 0, 1, 0], [1, 2, 2, 0], [7, 8]),
        (["tup", "tup_tuple", "y"], INT, 1, 2, [0, 0, 1, 0], [0, 2, 1, 2], [5, 6]),
    ], 3)
    # MAP as Hive wrote it: the annotations change places.
    hand_made("old-map", [
        node("schema", children=1),
        node("m", OPT, children=1, converted=2), node("map", REP, children=2, converted=1),
        node("key", 0, TEXT, converted=0), node("value", OPT, INT),
    ], [
        (["m", "map", "key"], TEXT, 1, 2, [0, 1, 0, 0], [2, 2, 1, 0], [b"k", b"l"]),
        (["m", "map", "value"], INT, 1, 3, [0, 1, 0, 0], [3, 2, 1, 0], [1]),
    ], 3)
    # A list of lists where the inner one is the repeated node itself, and a map of keys alone.
    hand_made("old-nested", [
        node("schema", children=2),
        node("a", OPT, children=1, converted=LIST), node("array", REP, children=1, converted=LIST), node("array", REP, INT),
        node("s", OPT, children=1, converted=MAP), node("map", REP, children=1), node("key", 0, TEXT, converted=0),
    ], [
        (["a", "array", "array"], INT, 2, 3, [0, 2, 1, 0, 0, 0, 1], [3, 3, 3, 0, 1, 2, 3], [1, 2, 3, 4]),
        (["s", "map", "key"], TEXT, 1, 2, [0, 1, 0, 0, 0], [2, 2, 0, 1, 2], [b"k", b"l", b"m"]),
    ], 4)
    one = [node("schema", children=1), node("n", 0, INT)]
    values = list(range(-300, 300))

    def members(b):
        return gzip.compress(b[:1000], mtime=0) + gzip.compress(b[1000:], mtime=0)

    def hadoop(b):
        parts = [b[:1000], b[1000:]]
        return b"".join(struct.pack(">II", len(p), len(z)) + z
                        for p in parts for z in [pa.Codec("lz4_raw").compress(p, asbytes=True)])
    hand_made("two-members", one, [(["n"], INT, 0, 0, [], [], values)], 600, members, 2)
    # What is refused: 128 MiB from 4 kB, groups in groups, names that clash.
    hand_made("bomb", one, [(["n"], INT, 0, 0, [], [], bytes(128 << 20))], 32 << 20,
              lambda b: pa.Codec("zstd").compress(b, asbytes=True), 6, refused=True)
    deep = [node("schema", children=1)] + [node("g%d" % i, children=1) for i in range(40)] + [node("n", 0, INT)]
    hand_made("too-deep", deep, [(["n"], INT, 0, 0, [], [], [1])], 1, refused=True)
    hand_made("twice", [node("schema", children=2), node("n", 0, INT), node("n", 0, INT)],
              [(["n"], INT, 0, 0, [], [], [1])] * 2, 1, refused=True)
    hand_made("hadoop-lz4", one, [(["n"], INT, 0, 0, [], [], values)], 600, hadoop, 5)


def other_writers():
    """duckdb 2.0.0, polars 2.1.0 and fastparquet 2026.9.0, where they are installed."""
    import duckdb
    import fastparquet
    import pandas
    import polars
    n = 50
    words = [None if i % 9 == 0 else text(i % 7) for i in range(n)]
    con = duckdb.connect()
    con.execute("create table t as select range as id, case when range % 9 > 0 then repeat('é x ', range % 5) end as text, "
                "[range, null] as l, {'a': range, 'b': [range]} as s, map(['k'], [range]) as m, range::hugeint as h, "
                "(range * 1.5)::decimal(18, 3) as d, timestamp '2020-01-01' + interval (range) second as t from range(50)")
    con.execute(f"copy t to '{OUT}/duckdb.parquet' (format parquet, parquet_version v2, compression zstd)")
    polars.DataFrame({"id": range(n), "text": words, "l": [None if i % 7 == 0 else words[:i % 4] for i in range(n)]}
                     ).write_parquet(f"{OUT}/polars.parquet", row_group_size=20, data_page_size=200)
    fastparquet.write(f"{OUT}/fastparquet.parquet", pandas.DataFrame(
        {"id": list(range(n)), "text": [w or "" for w in words], "f": [i / 7 for i in range(n)]}), compression="GZIP")
    for name in ("duckdb", "polars", "fastparquet"):
        index[name] = name
        rows_file(name, pq.ParquetFile(os.path.join(OUT, name + ".parquet")).read().to_pylist())


os.makedirs(OUT, exist_ok=True)
flat_files()
typed_file()
nested_files()
instruction_file()
arrow_files()
old_files()
other_writers()
with open(os.path.join(OUT, "index.json"), "w") as f:
    json.dump(index, f, indent=1)
    f.write("\n")
