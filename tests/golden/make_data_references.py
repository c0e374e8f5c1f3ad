#!/usr/bin/env python3
"""Makes tests/golden/data: small files of every format and the sequences they must become.

Usage: make_data_references.py [--out tests/golden/data]

An implementation of its own, with whole lists in memory and no cache, of what engine/data/README.md
says of sequences: bytes tokenizer (256 bos, 257 eos, 258 pad), chatml without a default system turn, the
loss on the assistant's text and its <|im_end|>. Only the standard library is used.
"""
import argparse
import array
import json
import os
import random
import struct

EOS, PAD, MASKED = 257, 258, -100

WORDS = ("the a model learns small steps tokens of text and numbers, every layer streams once; "
         "naïve façade Ωμέγα 训练 模型 🚀 if (x < 10) { return y; }").split(" ")


def sentence(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def chatml(messages):
    """The ids, and which of them the loss is on."""
    ids, target = [], []
    for message in messages:
        head = f"<|im_start|>{message['role']}\n".encode()
        body = f"{message['content']}<|im_end|>".encode()
        ids += head + body + b"\n"
        target += [False] * len(head) + [message["role"] == "assistant"] * len(body) + [False]
    return list(ids), target


def read_documents(path, form):
    """(is chat, ids, target) of each document of a file."""
    if form == "text" and path.endswith(".txt"):
        texts = [open(path, newline="", encoding="utf-8").read()]
    else:
        content = open(path, encoding="utf-8-sig").read()
        if content.lstrip().startswith("["):
            records = json.loads(content)
        else:
            records = [json.loads(line) for line in content.splitlines() if line.strip()]
    if form == "text":
        if not path.endswith(".txt"):
            texts = [record["text"] for record in records]
        for text in texts:
            ids = list(text.encode()) + [EOS]
            yield False, ids, [True] * len(ids)
        return
    for record in records:
        if form == "alpaca":
            user = record["instruction"]
            if record.get("input"):
                user += "\n" + record["input"]
            messages = [{"role": "user", "content": user},
                        {"role": "assistant", "content": record["output"]}]
        else:
            messages = record["messages"]
        yield True, *chatml(messages)


class Sequence:
    def __init__(self):
        self.input_ids, self.labels, self.position_ids, self.document_ids = [], [], [], []

    def add(self, ids, target):
        number = self.document_ids[-1] + 1 if self.document_ids else 0
        for i, (token, on) in enumerate(zip(ids, target)):
            unpredicted = i == 0 and number > 0
            self.input_ids.append(token)
            self.labels.append(token if on and not unpredicted else MASKED)
            self.position_ids.append(i)
            self.document_ids.append(number)

    def finish(self, length):
        padding = length - len(self.input_ids)
        self.input_ids += [PAD] * padding
        self.labels += [MASKED] * padding
        self.position_ids += range(padding)
        self.document_ids += [-1] * padding
        return vars(self)


def pack(documents, length, packing):
    sequences, truncated, without_target = [], 0, 0
    for chat, ids, target in documents:
        fresh = not packing or not sequences
        if chat:
            truncated += len(ids) > length
            ids, target = ids[:length], target[:length]
            if not any(target[1:]):
                without_target += 1
                continue
            if fresh or len(sequences[-1].input_ids) + len(ids) > length:
                sequences.append(Sequence())
            sequences[-1].add(ids, target)
            continue
        while ids:
            if fresh or len(sequences[-1].input_ids) == length:
                sequences.append(Sequence())
            fresh = False
            room = length - len(sequences[-1].input_ids)
            sequences[-1].add(ids[:room], target[:room])
            ids, target = ids[room:], target[room:]
    predicting = [s for s in sequences if any(s.position_ids)]  # else every document is one token
    without_target += len(sequences) - len(predicting)
    return {"sequences": [s.finish(length) for s in predicting], "truncated": truncated,
            "without_target": without_target, "dropped": 0}


def cut(ids, length):
    sequences = []
    for i in range(len(ids) // length):
        sequence = Sequence()
        sequence.add(ids[i * length:(i + 1) * length], [True] * length)
        sequences.append(sequence.finish(length))
    return {"sequences": sequences, "truncated": 0, "without_target": 0,
            "dropped": len(ids) % length}


def write_corpus(out):
    rng = random.Random(7)

    def put(name, content):
        with open(os.path.join(out, name), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())

    put("story.txt", "".join(sentence(rng, 9) + ".\n" for _ in range(6)))
    lines = [{"text": sentence(rng, rng.randrange(0, 12))} for _ in range(9)]
    lines[3] = {"id": 4, "text": ""}
    put("lines.jsonl", "".join(json.dumps(x, ensure_ascii=i % 2 == 0) + ["\n", "\r\n", "\n\n"][i % 3]
                               for i, x in enumerate(lines)).rstrip())
    alpaca = [{"instruction": sentence(rng, 3), "input": sentence(rng, i % 3),
               "output": sentence(rng, 1 + 3 * (i % 4))} for i in range(12)]
    del alpaca[0]["input"]
    put("alpaca.json", b"\xef\xbb\xbf" + json.dumps(alpaca, indent=1, ensure_ascii=False).encode())
    turns = []
    for i in range(10):
        messages = [{"role": "system", "content": sentence(rng, 2)}] if i % 3 == 0 else []
        for _ in range(1 + i % 2):
            messages.append({"role": "user", "content": sentence(rng, 2)})
            messages.append({"role": "assistant", "content": sentence(rng, rng.randrange(0, 6))})
        turns.append({"messages": messages})
    turns[4]["messages"] = turns[4]["messages"][:1]  # no answer
    put("turns.jsonl", "".join(json.dumps(x) + "\n" for x in turns))
    ids = [rng.randrange(259) for _ in range(301)]
    header = "{'descr': '<u2', 'fortran_order': False, 'shape': (301,), }"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    put("ids.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
        array.array("H", ids).tobytes())
    return ids


CASES = [  # name, files, length, packing
    ("text_packed", [("story.txt", "text"), ("lines.jsonl", "text")], 48, True),
    ("text_unpacked", [("lines.jsonl", "text"), ("story.txt", "text")], 40, False),
    ("alpaca_packed", [("alpaca.json", "alpaca")], 192, True),
    ("messages_unpacked", [("turns.jsonl", "messages")], 130, False),
    ("mixed_packed", [("turns.jsonl", "messages"), ("lines.jsonl", "text"),
                      ("alpaca.json", "alpaca")], 160, True),
    ("tokens", [("ids.npy", "tokens")], 64, True),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "data"))
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    ids = write_corpus(out)
    for name, files, length, packing in CASES:
        if files[0][1] == "tokens":
            result = cut(ids, length)
        else:
            result = pack([d for file, form in files
                           for d in read_documents(os.path.join(out, file), form)],
                          length, packing)
        result.update(files=[{"path": p, "format": f} for p, f in files], sequence_length=length,
                      packing=packing)
        with open(os.path.join(out, name + ".expected.json"), "w") as file:
            json.dump(result, file, separators=(",", ":"))
            file.write("\n")
        print(f"{name}: {len(result['sequences'])} sequences, {result['truncated']} truncated, "
              f"{result['without_target']} without target, {result['dropped']} dropped")


if __name__ == "__main__":
    main()
