"""Makes tests/golden/tokenizers: small tokenizers in the families' configurations, and what the
`tokenizers` and `transformers` libraries make of hard text and of conversations.

    python tests/golden/make_tokenizer_references.py

Made with tokenizers 0.23, transformers 5.24 and sentencepiece 0.2, which need protobuf for
tokenizer.model. Everything is drawn from fixed seeds.
"""

import collections
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers
from jinja2.exceptions import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from sentencepiece_models import SENTENCEPIECE, charsmap, sentencepiece_model
from tokenizer_texts import (ALTERNATING, CHARACTER_HARD, CONVERSATIONS, HARD, KIND_HARD, SCRIPTS_HARD, corpus,
                             random_texts)

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "tokenizers"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# GPT-4o's: categories inside classes and optional contractions behind words.
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")


def fnv(hash_, value):
  for byte in value.to_bytes(4, "little"):
    hash_ = (hash_ ^ byte) * 0x100000001b3 & 0xffffffffffffffff
  return hash_


def all_code_point_hashes(pre_tokenizer):
  """For each block of 4096 code points: a hash of the byte lengths of the pieces of a text that
  holds each of them between letters, digits, punctuation and apostrophes."""
  hashes = []
  for block in range(0x110):
    text = "".join(f"a{chr(c)}1{chr(c)}.{chr(c)} {chr(c)}'{chr(c)}{chr(c)}\n"
                   for c in range(block * 4096, block * 4096 + 4096) if not 0xd800 <= c <= 0xdfff)
    hash_ = 0xcbf29ce484222325
    if text:
      for _, (begin, end) in pre_tokenizer.pre_tokenize_str(text):
        hash_ = fnv(hash_, len(text[begin:end].encode()))
    hashes.append(f"{hash_:016x}")
  return hashes


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def split(pattern, behavior="isolated", invert=False):
  return pre_tokenizers.Split(Regex(pattern), behavior, invert)


EXTRA = [
    AddedToken("[MASK]", lstrip=True, special=True, normalized=False),
    AddedToken("<L>", lstrip=True, special=False, normalized=False),
    AddedToken("<R>", rstrip=True, special=False, normalized=False),
    AddedToken("<LR>", lstrip=True, rstrip=True, special=False, normalized=True),
    AddedToken("solo", single_word=True, special=False, normalized=True),
    AddedToken("cafe\u0301X", special=False, normalized=True),
    AddedToken("overlap", special=False, normalized=False),
    AddedToken("overlapping", special=False, normalized=False),
]

# name: (normalizer, pre-tokenizer, specials, further added tokens, ignore_merges, list merges)
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONFIGURATIONS = {
    "gpt2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"], [], False),
    "gpt2_prefix": (None, pre_tokenizers.ByteLevel(add_prefix_space=True), ["<|endoftext|>"], EXTRA, False),
    "llama3": (None, pre_tokenizers.Sequence([split(LLAMA3), BYTE_LEVEL]),
               ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                "<|eot_id|>"], [], True),
    "qwen": (normalizers.NFC(), pre_tokenizers.Sequence([split(QWEN), BYTE_LEVEL]), CHATML,
             [AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False),
              AddedToken("<tool_call>", normalized=False)], False),
    "qwen_added": (normalizers.Sequence([normalizers.NFC()]),
                   pre_tokenizers.Sequence([split(QWEN), BYTE_LEVEL]), CHATML, EXTRA, False),
    "o200k": (None, pre_tokenizers.Sequence([split(O200K, "removed", True), BYTE_LEVEL]),
              ["<|endoftext|>"], [], False),
    "splits": (None, pre_tokenizers.Sequence([
        split(r"\p{N}{1,3}"), split(r"[,;]", "merged_with_previous"),
        split(r"[<(]", "merged_with_next"), split(r"[-=]", "contiguous"),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(".", "removed"), split(r"\s+", "isolated"), BYTE_LEVEL]),
               ["<|endoftext|>"], [], False),
}

# SentencePiece's BPE of characters, a space being "\u2581".
MARK = "\u2581"
MARKED = normalizers.Replace(" ", MARK)


def metaspace(scheme):
  return pre_tokenizers.Metaspace(MARK, prepend_scheme=scheme, split=False)


# name: (normalizer, pre-tokenizer, specials, further added tokens, spaces stripped in decoding, tokens
# with spaces inside)
CHARACTER_CONFIGURATIONS = {
    "llama2": (normalizers.Sequence([normalizers.Prepend(MARK), MARKED]), None, ["<unk>", "<s>", "</s>"],
               EXTRA + [AddedToken("<|endoftext|>", special=True, normalized=True)], 1, False),
    "mistral_metaspace": (None, metaspace("first"), ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], EXTRA, 1,
                          False),
    "metaspace_always": (None, metaspace("always"), ["<unk>", "<s>", "</s>", "<|endoftext|>"], EXTRA, 1, False),
    "gemma_replace": (MARKED, pre_tokenizers.Split(" ", "merged_with_previous"),
                      ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"],
                      [AddedToken("[MASK]", special=True, normalized=False)], 0, True),
}


CHATML_PLAIN = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
                "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def chat_cases(tokenizer, conversations):
  """What the library renders, and the ids of that; no text where the template raises an error."""
  cases = []
  for conversation in conversations:
    messages = [{"role": role, "content": content} for role, content in conversation]
    try:
      text = tokenizer.apply_chat_template(messages, tokenize=False)
    except TemplateError:
      cases.append({"messages": messages})
      continue
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    cases.append({"messages": messages, "text": text, "ids": ids})
  return cases


def build(name, rng):
  normalizer, pre_tokenizer, specials, added, ignore_merges = CONFIGURATIONS[name]
  tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
  if normalizer is not None:
    tokenizer.normalizer = normalizer
  tokenizer.pre_tokenizer = pre_tokenizer
  tokenizer.decoder = decoders.ByteLevel()
  trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                show_progress=False)
  tokenizer.train_from_iterator(corpus(rng), trainer)
  tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
  tokenizer.add_tokens([t for t in added])
  folder = OUT / name
  folder.mkdir(parents=True, exist_ok=True)
  content = json.loads(tokenizer.to_str())
  if name.startswith("gpt2"):  # the older form of merges
    content["model"]["merges"] = [" ".join(m) for m in content["model"]["merges"]]
  if ignore_merges:
    # A word that is a token but that no merge reaches.
    content["model"]["vocab"]["\u0120zyzzyva"] = len(content["model"]["vocab"])
    for token in content["added_tokens"]:
      token["id"] += 1
  (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n")
  tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
  cases = cases_of(tokenizer, HARD + random_texts(rng, 300) + [" zyzzyva zyzzyva"])
  hashes = all_code_point_hashes(tokenizer.pre_tokenizer) if name not in ("gpt2_prefix", "qwen_added") else []
  write_cases(folder, cases, hashes)


def build_characters(name, rng):
  normalizer, pre_tokenizer, specials, added, strip, across = CHARACTER_CONFIGURATIONS[name]
  bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
  trained = Tokenizer(models.BPE())
  trained.normalizer = MARKED
  if not across:
    trained.pre_tokenizer = pre_tokenizers.Metaspace(MARK, prepend_scheme="always", split=True)
  # Gemma's have line feeds, in the others they are bytes.
  lines = corpus(rng) if across else [line for text in corpus(rng) for line in text.split("\n")]
  # Characters beyond the most common ones are left to the bytes. (Without initial_alphabet, chance
  # decides between equally common ones.)
  counts = collections.Counter(MARK.join(lines).replace(" ", MARK))
  alphabet = sorted(counts, key=lambda c: (-counts[c], c))[:130]
  trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, limit_alphabet=len(alphabet),
                                show_progress=False)
  trained.train_from_iterator(lines, trainer)
  content = json.loads(trained.to_str())["model"]
  tokens = sorted(content["vocab"], key=content["vocab"].get)
  merges = [tuple(m) for m in content["merges"]]
  # Runs of spaces and line feeds, as these families have them.
  for character in [MARK, "\n"] if across else [MARK]:
    for length in range(2, 17):
      if character * length not in tokens:
        tokens.append(character * length)
      if length in (2, 4, 8, 16):
        merges.append((character * (length // 2), character * (length // 2)))
      else:
        merges.append((character * (length - 1), character))
  vocabulary = {token: i for i, token in enumerate(dict.fromkeys(specials + bytes_ + tokens))}
  tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
  if normalizer is not None:
    tokenizer.normalizer = normalizer
  if pre_tokenizer is not None:
    tokenizer.pre_tokenizer = pre_tokenizer
  tokenizer.decoder = decoders.Sequence(
      [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()] +
      ([decoders.Strip(" ", strip, 0)] if strip else []))
  tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
  tokenizer.add_tokens([t for t in added])
  folder = OUT / name
  folder.mkdir(parents=True, exist_ok=True)
  content = json.loads(tokenizer.to_str())
  if name == "llama2":  # the older form of merges
    content["model"]["merges"] = [" ".join(m) for m in content["model"]["merges"]]
  (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n")
  tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
  texts = HARD + CHARACTER_HARD + random_texts(rng, 300)
  write_cases(folder, cases_of(tokenizer, texts, offsets=True), [])


def special(*names):
  return [AddedToken(name, special=True, normalized=False) for name in names]


WORDPIECE_ADDED = [AddedToken("[MASK]", special=True, normalized=False, lstrip=True),
                   AddedToken("Solo", single_word=True, special=False, normalized=True)]


def kinds(rng):
  """name: (model, trainer, normalizer, pre-tokenizer, decoder, post-processor, specials, added)"""
  precompiled = normalizers.Precompiled(charsmap())
  unigram = dict(vocab_size=600, show_progress=False, max_piece_length=12, n_sub_iterations=1)
  t5 = normalizers.Sequence([precompiled, normalizers.Strip(left=False, right=True),
                             normalizers.Replace(Regex(" {2,}"), MARK)])
  albert = normalizers.Sequence([
      normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
      normalizers.Lowercase(), precompiled, normalizers.Replace(Regex(" {2,}"), " ")])
  return {
      "unigram_t5": (
          models.Unigram(), trainers.UnigramTrainer(unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"],
                                                    **unigram),
          t5, pre_tokenizers.Metaspace(MARK, "always", split=True), decoders.Metaspace(MARK, "always", split=True),
          processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)]), ["<pad>", "</s>", "<unk>"],
          EXTRA),
      "unigram_albert": (
          models.Unigram(), trainers.UnigramTrainer(unk_token="<unk>", special_tokens=["[CLS]", "[SEP]", "<unk>"],
                                                    **unigram),
          albert, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                           pre_tokenizers.Metaspace(MARK, "always", split=True)]),
          decoders.Metaspace(MARK, "always", split=True),
          processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]),
          ["[CLS]", "[SEP]", "<unk>"], []),
      "unigram_whole": (
          models.Unigram(), trainers.UnigramTrainer(
              unk_token="<unk>", special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)],
              **{**unigram, "vocab_size": 900}),
          normalizers.Sequence([normalizers.Prepend(MARK), MARKED]), None,
          decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                             decoders.Strip(" ", 1, 0)]),
          processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]), ["<unk>", "<s>", "</s>"], EXTRA),
      "wordpiece": (
          models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20),
          trainers.WordPieceTrainer(vocab_size=700, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
                                    show_progress=False),
          normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece(),
          processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
          WORDPIECE_ADDED),
      "wordlevel": (
          models.WordLevel(unk_token="[UNK]"),
          trainers.WordLevelTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False),
          normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]),
          pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]), None,
          None, ["[UNK]"], []),
      "bpe_suffix": (
          models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True),
          trainers.BpeTrainer(vocab_size=700, end_of_word_suffix="</w>", special_tokens=["<unk>"], limit_alphabet=120,
                              show_progress=False),
          normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
          pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
                                   pre_tokenizers.CharDelimiterSplit("-")]),
          decoders.BPEDecoder("</w>"), None, ["<unk>"], []),
      "bpe_prefix": (
          models.BPE(unk_token="<unk>", continuing_subword_prefix="##"),
          trainers.BpeTrainer(vocab_size=700, continuing_subword_prefix="##", special_tokens=["<unk>"],
                              limit_alphabet=120, show_progress=False),
          normalizers.NFKC(), pre_tokenizers.Whitespace(), decoders.WordPiece(cleanup=False), None, ["<unk>"], []),
      "bpe_metaspace": (
          models.BPE(unk_token="<unk>"),
          trainers.BpeTrainer(vocab_size=700, special_tokens=["<s>", "</s>", "<unk>"], limit_alphabet=120,
                              show_progress=False),
          normalizers.NFC(), pre_tokenizers.Sequence([
              pre_tokenizers.Metaspace(MARK, "first", split=True), pre_tokenizers.Digits(individual_digits=True)]),
          decoders.Metaspace(MARK, "first", split=True),
          processors.RobertaProcessing(("</s>", 1), ("<s>", 0)), ["<s>", "</s>", "<unk>"], EXTRA),
      "scripts": (
          models.BPE(unk_token="<unk>", fuse_unk=True),
          trainers.BpeTrainer(vocab_size=700, special_tokens=["<unk>"], show_progress=False),
          None, pre_tokenizers.UnicodeScripts(), None, None, ["<unk>"], EXTRA),
  }


def build_kind(name, rng, parts):
  model, trainer, normalizer, pre_tokenizer, decoder, post_processor, specials, added = parts
  tokenizer = Tokenizer(model)
  if normalizer is not None:
    tokenizer.normalizer = normalizer
  if pre_tokenizer is not None:
    tokenizer.pre_tokenizer = pre_tokenizer
  if decoder is not None:
    tokenizer.decoder = decoder
  if post_processor is not None:
    tokenizer.post_processor = post_processor
  lines = [line for text in corpus(rng) for line in text.split("\n") if line]
  # Without a pre-tokenizer a line is one word, and there would be no common ones.
  tokenizer.train_from_iterator([word for line in lines for word in line.split()] if pre_tokenizer is None else lines,
                                trainer)
  tokenizer.add_special_tokens(special(*specials))
  tokenizer.add_tokens([t for t in added])
  folder = OUT / name
  folder.mkdir(parents=True, exist_ok=True)
  content = json.loads(tokenizer.to_str())
  (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n")
  tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
  texts = HARD + CHARACTER_HARD + KIND_HARD + (SCRIPTS_HARD if name == "scripts" else []) + random_texts(rng, 300)
  hashes = all_code_point_hashes(tokenizer.pre_tokenizer) if name == "scripts" else []
  write_cases(folder, cases_of(tokenizer, texts), hashes, tokenizer)


def build_sentencepiece(name, rng):
  tokenizer_class, model_type, config, options = SENTENCEPIECE[name]
  folder = OUT / name
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "tokenizer.model").write_bytes(sentencepiece_model(rng, **options))
  (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class, **config}) + "\n")
  (folder / "config.json").write_text(json.dumps({"model_type": model_type}) + "\n")
  tokenizer = AutoTokenizer.from_pretrained(str(folder)).backend_tokenizer
  texts = HARD + CHARACTER_HARD + KIND_HARD + ["<user>a <ctl> [INST]b<mask>"] + random_texts(rng, 200)
  write_cases(folder, cases_of(tokenizer, texts), [], tokenizer)


def cases_of(tokenizer, texts, offsets=False):
  """`offsets`: also where each token begins, in bytes of UTF-8."""
  cases = []
  for text in texts:
    encoding = tokenizer.encode(text, add_special_tokens=False)
    ids = encoding.ids
    case = {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
    if offsets:
      case["offsets"] = [len(text[:begin].encode()) for begin, _ in encoding.offsets]
    cases.append(case)
  return cases


def write_cases(folder, cases, hashes, tokenizer=None):
  result = {"cases": cases, "code_point_hashes": hashes}
  if tokenizer is not None:
    ids = tokenizer.encode("word").ids
    inner = tokenizer.encode("word", add_special_tokens=False).ids
    at = next(i for i in range(len(ids)) if ids[i:i + len(inner)] == inner)
    result["before"], result["after"] = ids[:at], ids[at + len(inner):]
  (folder / "cases.json").write_text(json.dumps(result, ensure_ascii=True, indent=None, separators=(",", ":")) + "\n")


def with_specials(name, source, specials):
  """The tokenizer `source` with a family's special tokens."""
  tokenizer = Tokenizer.from_file(str(OUT / source / "tokenizer.json"))
  tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
  folder = OUT / name
  folder.mkdir(parents=True, exist_ok=True)
  (folder / "tokenizer.json").write_text(
      json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=0) + "\n")


# The tokenizers of chats: (bos, eos).
ENDS = {"qwen": (None, "<|im_end|>"), "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
        "mistral": ("<s>", "</s>"), "gemma": ("<bos>", "<eos>")}


def chats(templates):
  # name: (tokenizer, program)
  for name, (source, text) in templates.items():
    bos, eos = ENDS[source]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(OUT / source / "tokenizer.json"), bos_token=bos,
                                        eos_token=eos)
    tokenizer.chat_template = text
    conversations = CONVERSATIONS + (ALTERNATING if source in ("mistral", "gemma") else [])
    folder = OUT / "chat" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chat_template.jinja").write_text(text)
    (folder / "cases.json").write_text(json.dumps(chat_cases(tokenizer, conversations), indent=None) + "\n")


def main():
  for name in CONFIGURATIONS:
    build(name, random.Random(f"tokenizer {name}"))
  for name in CHARACTER_CONFIGURATIONS:
    build_characters(name, random.Random(f"tokenizer {name}"))
  for name, parts in kinds(random.Random("kinds")).items():
    build_kind(name, random.Random(f"tokenizer {name}"), parts)
  for name in SENTENCEPIECE:
    build_sentencepiece(name, random.Random(f"tokenizer {name}"))
  # Mistral's from Nemo on is of the o200k kind; those before and Gemma's are not byte-level, and any
  # serves for their templates.
  with_specials("mistral", "o200k", ["<s>", "</s>", "[INST]", "[/INST]"])
  with_specials("gemma", "o200k", ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"])
  templates = {"chatml": ("qwen", CHATML_PLAIN)}
  for path in sorted((HERE / "chat_templates").glob("*.jinja")):
    source = next(s for s in ENDS if path.name.startswith(s))
    templates[path.stem] = (source, path.read_text())
  chats(templates)


if __name__ == "__main__":
  main()
