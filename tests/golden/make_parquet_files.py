#!/usr/bin/env python3
"""Writes tests/golden/parquet: small Parquet files by pyarrow, and for each the rows that are to be read of it.

  tests/golden/make_parquet_files.py     (pyarrow 26)

NAME.parquet goes with NAME.jsonl, an object a row. The files of bad/ cannot be read: what each claims is not so.
"""
import datetime
import decimal
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parquet")


def rows_of(table):
    """The rows as ParquetRecordReader tells them: nulls left out but in lists, times and decimals as texts."""

    def value(kind, x):
        if pa.types.is_dictionary(kind):
            return value(kind.value_type, x)
        if pa.types.is_struct(kind):
            return {f.name: value(f.type, x[f.name]) for f in kind if x[f.name] is not None}
        if pa.types.is_map(kind):
            if pa.types.is_string(kind.key_type):
                return {k: value(kind.item_type, v) for k, v in x if v is not None}
            return [{"key": value(kind.key_type, k), "value": value(kind.item_type, v)} for k, v in x]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            return [None if y is None else value(kind.value_type, y) for y in x]
        if pa.types.is_binary(kind):
            return x.decode()
        if isinstance(x, (datetime.date, datetime.datetime, decimal.Decimal)):
            return str(x)
        return x

    def kept(field, x):
        if x is None or (isinstance(x, float) and x != x):
            return False
        return not (isinstance(x, bytes) and field.name == "picture")

    return [{f.name: value(f.type, row[f.name]) for f in table.schema if kept(f, row[f.name])}
            for row in table.to_pylist()]


def write(name, table, **options):
    pq.write_table(table, os.path.join(FOLDER, name + ".parquet"), **options)
    with open(os.path.join(FOLDER, name + ".jsonl"), "w") as file:
        for row in rows_of(table):
            file.write(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")


def texts():
    words = ["eins", "zwei \"drei\"", "", "тест\n中文 🙂", "tab\tback\\slash\x01"]
    table = pa.table({
        "id": pa.array(range(250), pa.int64()),
        "text": pa.array([words[i % 5] + (str(i) if i % 3 else "") for i in range(250)], pa.string()),
        "picture": pa.array([b"\xff\xd8\xff" + bytes([i]) for i in range(250)], pa.binary()),
    })
    write("texts", table, row_group_size=100, compression="snappy")


def types():
    number = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string()), ("d", pa.float64())])))])
    table = pa.table({
        "flag": pa.array([True, False, None]),
        "small": pa.array([-128, 127, None], pa.int8()),
        "wide": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "real": pa.array([0.1, -1.5e300, float("nan")], pa.float64()),
        "single": pa.array([0.5, 3.0, None], pa.float32()),
        "large": pa.array(["grüße", None, ""], pa.large_string()),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "bytes": pa.array([b"utf8", "ä".encode(), None], pa.binary()),
        "day": pa.array([datetime.date(2026, 1, 31), None, datetime.date(1969, 12, 31)]),
        "price": pa.array([decimal.Decimal("12.50"), decimal.Decimal("-0.01"), None], pa.decimal128(9, 2)),
        "nested": pa.array([{"a": 1, "b": [{"c": "x", "d": 0.25}, None]}, {"a": None, "b": []}, None], number),
        "lists": pa.array([[[1, 2], []], [None, [None]], None], pa.list_(pa.list_(pa.int64()))),
        "by_name": pa.array([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int64())),
        "by_number": pa.array([[(1, "one")], [(2, None)], None], pa.map_(pa.int64(), pa.string())),
    })
    write("types", table, compression="zstd")
    write("no_name", pa.table({"": pa.array([7]), "text": pa.array(["eins"])}))


def chats():
    message = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.int64())])
    chat = lambda i: [{"role": "user", "content": f"Q{i}", "weight": None},
                      {"role": "assistant", "content": f"A{i} ä", "weight": 0 if i == 1 else None}]
    write("messages", pa.table({
        "source": pa.array(["s"] * 3),
        "messages": pa.array([chat(0), chat(1) + chat(2), chat(3)], pa.list_(message)),
    }), compression="gzip")
    turn = pa.struct([("from", pa.string()), ("value", pa.large_string())])
    write("conversations", pa.table({
        "conversations": pa.array([[{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]] * 2,
                                  pa.list_(turn)),
        "system": pa.array([None, "Be brief."]),
    }), compression="brotli")
    write("alpaca", pa.table({
        "instruction": pa.array(["Add", "Say hi"]),
        "input": pa.array(["1 1", None]),
        "output": pa.array(["2", "hi"]).dictionary_encode(),
    }), compression="lz4")
    write("empty", pa.table({"text": pa.array([], pa.string())}))


def varint(value):
    out = bytearray()
    while True:
        out.append(value & 127 | (128 if value > 127 else 0))
        value >>= 7
        if value == 0:
            return bytes(out)


def bad():
    def save(name, content):
        with open(os.path.join(FOLDER, "bad", name + ".parquet"), "wb") as file:
            file.write(content)

    def table_bytes(table, **options):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, **options)
        return sink.getvalue().to_pybytes()

    plain = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    rows = table_bytes(pa.table({"text": pa.array(["text %d" % i for i in range(1000)])}), compression="none", **plain)
    footer = len(rows) - 8 - int.from_bytes(rows[-8:-4], "little")
    count = varint(2 * 1000)  # zigzag: rows of the file, values of the column, of a histogram, rows of the group
    places = [i for i in range(footer, len(rows)) if rows.startswith(count, i)]
    assert len(places) == 4

    def claim(which, value):
        content = bytearray(rows)
        for i in which:
            content[places[i]:places[i] + 2] = varint(2 * value)
        return bytes(content)

    save("file_claims_more_rows", claim([0], 8000))
    save("group_claims_more_rows", claim([3], 8000))
    save("all_claim_more_rows", claim([0, 1, 3], 8000))
    chunk = varint(2 * pq.read_metadata(pa.BufferReader(rows)).row_group(0).column(0).total_compressed_size)
    content = bytearray(rows)
    for i in range(footer, len(rows)):
        if rows.startswith(chunk, i):
            content[i:i + len(chunk)] = varint(2 * 1000000)
    save("chunk_beyond_the_file", bytes(content))
    content = bytearray(rows)
    content[-8:-4] = (2**31 - 1).to_bytes(4, "little")
    save("footer_larger_than_file", bytes(content))
    save("cut_short", rows[:len(rows) // 2])
    save("not_parquet", b"PAR1" + b"text" * 10 + b"PAR1")
    # The first page's header: its kind, then its size and its compressed size.
    packed = table_bytes(pa.table({"text": pa.array(["text %d" % i for i in range(1000)])}), compression="snappy", **plain)
    for name, content, at in [("page_claims_more_bytes", packed, 7), ("page_claims_more_compressed_bytes", rows, 11)]:
        assert content[4:7] == b"\x15\x00\x15" and content[10] == 0x15
        save(name, content[:at] + varint(2 * 1000000) + content[at + 3:])
    # A bomb: some tens of KB that are 1.25 GiB when they are decompressed.
    text = pa.array(["a" * (5 << 28)], pa.large_string())
    save("bomb", table_bytes(pa.table({"text": text}), compression="zstd", compression_level=19, **plain))
    # Invalid UTF-8 in a text, by way of bytes that are declared a text.
    table = pa.table({"text": pa.array([b"good", b"b\xffd", b"fine"], pa.binary())})
    save("text_is_no_utf8", table_bytes(table.cast(pa.schema([("text", pa.string())]), safe=False), **plain))


if __name__ == "__main__":
    os.makedirs(os.path.join(FOLDER, "bad"), exist_ok=True)
    texts()
    types()
    chats()
    bad()
