#!/usr/bin/env python3
"""Text tokenized per second over the `tokenizers` library, on one core each, and the ids compared.

    bazel build //tests/bench:tokenizer_bench
    python3 tests/bench/tokenizer_bench.py [KIND ..] [--bench PATH] [--rounds 5] [--megabytes 16] [--check 0]
                                           [--vocabulary 32000] [--work DIR] [--text FILE ..]

The tokenizers are those of tests/golden/tokenizers, trained anew with a vocabulary of usual size on text of
the same sort; they are kept in --work. The text is mixed from what the machine has: source code, messages of
programs in about a hundred languages (CJK, Cyrillic, Arabic, Indic), with emoji and combining marks; --text
adds files of UTF-8. It is cut into documents of 1 to 16 KB. Both sides encode them in interleaved rounds:
`tokenizers` by one call of encode_batch, without parallelism. Processor time is measured, and the median of
the rounds' ratios counts.
--check compares the ids of as many megabytes more, drawn anew.
Prints the table and exits 1 if a ratio is below its bound or an id differs.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/tokenizers"
BOUND = 5.0
MARK = "\u2581"
# "whole": no pre-tokenizer cuts the text into words.
KINDS = {
    "gpt2": "BPE of bytes", "llama3": "BPE of bytes", "qwen": "BPE of bytes, NFC", "o200k": "BPE of bytes",
    "llama2": "BPE of characters, whole", "mistral_metaspace": "BPE of characters, whole",
    "gemma_replace": "BPE of characters, whole", "bpe_metaspace": "BPE of characters",
    "unigram_t5": "Unigram", "unigram_albert": "Unigram", "unigram_whole": "Unigram, whole",
    "wordpiece": "WordPiece", "wordlevel": "WordLevel",
}


def messages(path):
  """The translations in a file of GNU gettext."""
  data = path.read_bytes()
  if len(data) < 20 or struct.unpack_from("<I", data)[0] != 0x950412DE:
    return ""
  count, _, table = struct.unpack_from("<3I", data, 8)
  texts = []
  for i in range(count):
    size, at = struct.unpack_from("<2I", data, table + 8 * i)
    texts.append(data[at:at + size].replace(b"\0", b"\n"))
  try:
    return b"\n".join(texts[1:]).decode()
  except UnicodeDecodeError:
    return ""


def sources(files):
  """Lists of texts of one sort each."""
  by_language = {}
  for path in sorted(pathlib.Path("/usr/share/locale").glob("*/LC_MESSAGES/*.mo")):
    by_language.setdefault(path.parts[4].split("_")[0], []).append(path)
  # As much of each language: no more than 60 files.
  rng = random.Random("languages")
  languages = [[messages(p) for p in rng.sample(paths, min(60, len(paths)))]
               for _, paths in sorted(by_language.items())]
  common = [[messages(p) for p in by_language.get(name, [])] for name in ("zh", "zh", "ja", "ja", "ko", "ru", "uk", "ar", "hi", "th")]
  code = []
  for folder, suffix in ((pathlib.Path(os.__file__).parent, "*.py"), (pathlib.Path("/usr/include"), "*.h"), (ROOT, "*.cc"),
                         (ROOT, "*.md")):
    paths = sorted(folder.rglob(suffix))
    code.append([p.read_text(errors="replace") for p in rng.sample(paths, min(1200, len(paths))) if p.is_file()])
  emoji = [chr(c) for c in range(0x1F300, 0x1FA00)] + ["\U0001F468\u200d\U0001F469\u200d\U0001F467", "\u2764\ufe0f", "\U0001F1E9\U0001F1EA"]
  marks = [chr(c) for c in range(0x300, 0x330)]
  letters = "aeiounsczAEIOU\u0438\u0435\u0391\u03b9 "
  noise = ["".join(rng.choice(emoji) + rng.choice(["", " ", "  ", "\n", " so ", "!"]) for _ in range(400)) for _ in range(20)]
  noise += ["".join(rng.choice(letters) + rng.choice(marks) + rng.choice(["", rng.choice(marks), "", "x "]) for _ in range(400))
            for _ in range(20)]
  own = [[pathlib.Path(name).read_text() for name in files]] if files else []
  groups = [[t for t in group if len(t) > 40] for group in code * 8 + common * 4 + languages + [noise] * 6 + own * 20]
  return [group for group in groups if group]


def documents(groups, seed, size):
  """Documents of `size` bytes together, each of one to four stretches of texts."""
  rng = random.Random(seed)
  while size > 0:
    parts = []
    for _ in range(rng.randint(1, 4)):
      text = rng.choice(rng.choice(groups))
      begin = rng.randrange(len(text))
      parts.append(text[begin:begin + rng.randint(300, 4000)])
    document = "\n".join(parts)
    size -= len(document.encode())
    yield document


def write_documents(path, texts):
  with open(path, "wb") as file:
    for text in texts:
      data = text.encode()
      file.write(struct.pack("<I", len(data)) + data)


def train(kind, groups, vocabulary):
  """The JSON of the golden tokenizer with a model that is trained anew."""
  golden = json.loads((GOLDEN / kind / "tokenizer.json").read_text())
  tokenizer = Tokenizer.from_str(json.dumps(golden))
  model = golden["model"]
  texts = list(documents(groups, f"train {kind}", 12_000_000))
  specials = [t["content"] for t in golden["added_tokens"]]
  if "whole" in KINDS[kind]:  # words, which the tokenizer does not cut
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)] if model["byte_fallback"] else []
    specials += bytes_
    mark = " " if kind == "gemma_replace" else ""
    texts = [mark + word for text in texts for word in text.split()]
  common = {"vocab_size": vocabulary, "special_tokens": specials, "show_progress": False}
  if model["type"] == "BPE":
    bytes_level = KINDS[kind].startswith("BPE of bytes")
    trainer = trainers.BpeTrainer(**common, initial_alphabet=[chr(c) for c in range(0x21, 0x7F)] if not bytes_level else
                                  [t for t in model["vocab"] if len(t) == 1], limit_alphabet=2500 if not bytes_level else 256)
  elif model["type"] == "Unigram":
    trainer = trainers.UnigramTrainer(**common, unk_token=model["vocab"][model["unk_id"]][0], max_piece_length=16)
  elif model["type"] == "WordPiece":
    trainer = trainers.WordPieceTrainer(**common, limit_alphabet=2500)
  else:
    trainer = trainers.WordLevelTrainer(**common)
  tokenizer.train_from_iterator(texts, trainer)
  trained = json.loads(tokenizer.to_str())
  # The trainer gave the added tokens new ids.
  tokens = trained["model"]["vocab"]
  if model["type"] == "Unigram":  # the trainer may make a special token a second time, from the text
    tokens[:] = [t for i, t in enumerate(tokens) if i < len(specials) or t[0] not in specials]
  ids = {token: i for i, (token, _) in enumerate(tokens)} if isinstance(tokens, list) else tokens
  trained["added_tokens"] = sorted(({**t, "id": ids[t["content"]]} for t in golden["added_tokens"]), key=lambda t: t["id"])
  if kind == "gemma_replace":  # runs of spaces and line feeds, as this family has them
    merges = trained["model"]["merges"]
    for character in (MARK, "\n"):
      tokens.setdefault(character, len(tokens))
      for length in range(2, 17):
        left = length // 2 if length in (2, 4, 8, 16) else length - 1
        if character * length not in tokens:
          tokens[character * length] = len(tokens)
          merges.append([character * left, character * (length - left)])
  return json.dumps(trained, ensure_ascii=False)


class Ours:
  def __init__(self, bench, tokenizer):
    self.process = subprocess.Popen([bench, tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

  def encode(self, path, ids="-"):
    self.process.stdin.write(f"{path} {ids}\n")
    self.process.stdin.flush()
    return float(self.process.stdout.readline())


def different(tokenizer, ours, work, texts):
  """The number of documents whose ids differ, with the first one printed."""
  write_documents(work / "check.bin", texts)
  ours.encode(work / "check.bin", work / "check.ids")
  ids = (work / "check.ids").read_bytes()
  at = wrong = 0
  for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
    data = struct.pack(f"<{len(encoding.ids)}i", *encoding.ids)
    if ids[at:at + len(data)] != data:
      if wrong == 0:
        print(f"ids differ from those of `tokenizers`, first in: {text[:200]!r}")
      wrong += 1
      return 1  # what follows is displaced
    at += len(data)
  return int(at != len(ids))


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("kinds", nargs="*")
  parser.add_argument("--bench", default=str(ROOT / "bazel-bin/tests/bench/tokenizer_bench"))
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--megabytes", type=float, default=16)
  parser.add_argument("--check", type=float, default=0)
  parser.add_argument("--vocabulary", type=int, default=32000)
  parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/tokenizer_bench"))
  parser.add_argument("--text", nargs="*", default=[])
  parser.add_argument("--seed", default="text")
  args = parser.parse_args()
  for kind in args.kinds:
    if kind not in KINDS:
      parser.error(f"{kind} is none of {', '.join(KINDS)}")
  args.work.mkdir(parents=True, exist_ok=True)
  groups = sources(args.text)
  texts = list(documents(groups, args.seed, args.megabytes * 1e6))
  size = sum(len(t.encode()) for t in texts)
  write_documents(args.work / "text.bin", texts)
  print(f"{len(texts)} documents, {size / 1e6:.1f} MB", flush=True)
  missed = 0
  for kind in args.kinds or KINDS:
    path = args.work / f"{kind}.{args.vocabulary}.json"
    if not path.exists():
      path.write_text(train(kind, groups, args.vocabulary))
    tokenizer = Tokenizer.from_file(str(path))
    ours = Ours(args.bench, path)
    wrong = different(tokenizer, ours, args.work, texts)
    checked = size
    for part in range(int(args.check // 8)):
      more = list(documents(groups, f"{args.seed} check {part}", 8e6))
      checked += sum(len(t.encode()) for t in more)
      wrong += different(tokenizer, ours, args.work, more)
    rates, ratios = [], []
    for _ in range(args.rounds):
      mine = ours.encode(args.work / "text.bin")
      begin = time.process_time()
      tokenizer.encode_batch(texts, add_special_tokens=False)
      theirs = time.process_time() - begin
      rates.append(size / mine / 1e6)
      ratios.append(theirs / mine)
    ratio = statistics.median(ratios)
    verdict = "" if ratio >= BOUND else "  MISSED"
    missed += bool(verdict) + wrong
    print(f"{kind:18} {KINDS[kind]:26} {statistics.median(rates):7.1f} MB/s  ratio {ratio:5.2f} (>= {BOUND:g}; "
          f"{min(ratios):.2f} to {max(ratios):.2f}){verdict}  ids of {checked / 1e6:.0f} MB "
          f"{'DIFFER' if wrong else 'equal'}", flush=True)
  return 1 if missed else 0


if __name__ == "__main__":
  sys.exit(main())
