#!/usr/bin/env python3
"""Trains every reference model for some steps, exports it, and has transformers go on from there.

    python3 check_exports.py [--megatraind ../../bazel-bin/server/megatraind] [FAMILY ...]

transformers must load the exported directory without a missing or unexpected key, and its loss of
the next batch must be that of the run, within 1e-5. Prints a line a family; exits 1 if any differs.
"""

import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

HERE = pathlib.Path(__file__).resolve().parent
LENGTH, BATCH = 32, 4
BOUND = 1e-5

JOB = """
name: export
model: {{path: {model}}}
data: {{train: [{{path: {place}/tokens.bin, format: tokens, dtype: uint32}}],
       sequence_length: {length}, shuffle: false}}
training: {{steps: 3, global_batch: {batch}, micro_batch: 2, precision: fp32}}
optimizer: {{learning_rate: 1.0e-3}}
schedule: {{type: constant, warmup_steps: 0}}
checkpoint: {{directory: {place}/checkpoints, every_steps: 2, keep: 9}}
engine: {{device: cpu}}
"""


def check(family, megatraind, place):
    generator = random.Random(3)
    tokens = [generator.randrange(2, 120) for _ in range(3 * BATCH * LENGTH)]
    (place / "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}I", *tokens))
    (place / "job.yaml").write_text(JOB.format(model=HERE / "models" / family, place=place,
                                               length=LENGTH, batch=BATCH))
    metrics, exported = place / "metrics.jsonl", place / "exported"
    for command in (["run", place / "job.yaml", "--metrics-out", metrics],
                    ["export", place / "checkpoints/step-00000002", "--out", exported]):
        subprocess.run([megatraind, *map(str, command)], check=True, capture_output=True)
    # The loss of step 3 is that before its update, at the weights of the checkpoint of step 2.
    ours = json.loads(metrics.read_text().splitlines()[2])["loss"]
    config = AutoConfig.from_pretrained(exported)
    auto = AutoModelForImageTextToText if config.sub_configs else AutoModelForCausalLM
    model, loading = auto.from_pretrained(exported, dtype=torch.float32,
                                          attn_implementation="eager",
                                          experts_implementation="eager",
                                          output_loading_info=True)
    batch = torch.tensor(tokens[2 * BATCH * LENGTH:]).reshape(BATCH, LENGTH)
    with torch.no_grad():
        theirs = model(input_ids=batch, labels=batch).loss.item()
    wrong_keys = len(loading["missing_keys"]) + len(loading["unexpected_keys"])
    error = abs(ours / theirs - 1)
    print(f"{family:16} loss {ours:.7f}, transformers' {theirs:.7f}, off by {error:.1e}; "
          f"{wrong_keys} wrong keys", flush=True)
    return error <= BOUND and wrong_keys == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", help="default: all of models/")
    parser.add_argument("--megatraind", default=HERE / "../../bazel-bin/server/megatraind")
    arguments = parser.parse_args()
    families = arguments.families or sorted(
        name for name in os.listdir(HERE / "models")
        if (HERE / "models" / name / "config.json").exists())
    passed = True
    for family in families:
        with tempfile.TemporaryDirectory() as directory:
            passed &= check(family, arguments.megatraind, pathlib.Path(directory))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
