"""Trains the small SentencePiece models of make_tokenizer_references.py, and takes a
precompiled_charsmap out of one."""

import io
import pathlib
import random
import tempfile

import sentencepiece

from tokenizer_texts import corpus

# Replacements of a small precompiled_charsmap (SentencePiece's own has 240 KB): compatibility
# characters, sequences with marks, removed characters and spaces.
CHARSMAP = [("\uff21", "A"), ("\uff22", "B"), ("\ufb01", "fi"), ("\ufb03", "ffi"), ("e\u0301", "\u00e9"),
            ("\u00a0", " "), ("\u3000", " "), ("\t", " "), ("\n", " "), ("\r", " "), ("\u200b", " "),
            ("\u0001", ""), ("\u00bd", "1\u20442"), ("\u2126", "\u03a9"), ("\u1112\u1161\u11ab", "\ud55c"),
            ("\u2460", "1"), ("\uff5e", "~"), ("\u2026", "..."), ("\u212b", "\u00c5"), ("\u2000", " ")]


def sentencepiece_model(rng, **options):
  """The bytes of a model, trained on the corpus. Without options, its charsmap is CHARSMAP's."""
  with tempfile.TemporaryDirectory() as folder:
    rules = pathlib.Path(folder) / "rules.tsv"
    rules.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
                             for a, b in CHARSMAP))
    if "normalization_rule_name" not in options:
      options["normalization_rule_tsv"] = str(rules)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in corpus(rng) for line in text.split("\n") if line), model_writer=model,
        minloglevel=2, num_threads=1, hard_vocab_limit=False, **options)
  return model.getvalue()


def charsmap():
  """The blob, out of the protobuf: field 3 (normalizer_spec), in it field 2."""
  data = sentencepiece_model(random.Random("charsmap"), vocab_size=400, model_type="bpe")

  def fields(data):
    at = 0

    def varint():
      nonlocal at
      value = shift = 0
      while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
          return value
    while at < len(data):
      key = varint()
      if key & 7 == 2:
        size = varint()
        yield key >> 3, data[at:at + size]
        at += size
      elif key & 7 == 5:
        at += 4
      else:
        varint()
  normalizer = dict(fields(data))[3]
  return dict(fields(normalizer))[2]


# name: (tokenizer_class, model_type, further keys of tokenizer_config.json, options of the trainer)
SENTENCEPIECE = {
    "spm_llama": ("LlamaTokenizer", "llama", {"add_bos_token": True},
                  dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", vocab_size=700,
                       user_defined_symbols=["<user>", "[INST]"], control_symbols=["<ctl>"])),
    "spm_llama_legacy": ("LlamaTokenizer", "llama", {"legacy": True, "add_eos_token": True},
                         dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                              vocab_size=500)),
    "spm_gemma": ("GemmaTokenizer", "gemma", {},
                  dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", vocab_size=700,
                       add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, bos_piece="<bos>",
                       eos_piece="<eos>")),
    "spm_bpe": ("PreTrainedTokenizerFast", "stablelm", {}, dict(model_type="bpe", vocab_size=500)),
    "spm_unigram": ("PreTrainedTokenizerFast", "stablelm", {},
                    dict(model_type="unigram", byte_fallback=True, vocab_size=500, user_defined_symbols=["<user>"])),
}
