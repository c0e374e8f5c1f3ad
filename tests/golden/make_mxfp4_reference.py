#!/usr/bin/env python3
"""Makes tests/golden/mxfp4: experts in MXFP4, and what transformers makes of them.

Usage: make_mxfp4_reference.py [--out tests/golden/mxfp4]

blocks.safetensors has the blocks and scales of the two matrices of two experts (hidden 64,
intermediate 32) under gpt-oss's names, with all bytes, and scales from the smallest up to the last
whose values are finite. dequantised.safetensors has the matrices that transformers dequantises them
to, in BF16.
"""
import argparse
import os

import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

EXPERTS, HIDDEN, INTERMEDIATE = 2, 64, 32
NAME = "model.layers.0.mlp.experts."


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "mxfp4"))
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(7)
    packed, values = {}, {}
    for name, rows, columns in [("gate_up_proj", 2 * INTERMEDIATE, HIDDEN),
                                ("down_proj", HIDDEN, INTERMEDIATE)]:
        shape = (EXPERTS, rows, columns // 32)
        count = EXPERTS * rows * columns // 32
        blocks = torch.arange(16 * count) % 256
        blocks = blocks[torch.randperm(16 * count)].reshape(*shape, 16).to(torch.uint8)
        scales = torch.arange(count) % 253  # 6 2^(252 - 127) is the largest finite value
        scales = scales[torch.randperm(count)].reshape(shape).to(torch.uint8)
        packed[NAME + name + "_blocks"] = blocks
        packed[NAME + name + "_scales"] = scales
        values[NAME + name] = convert_moe_packed_tensors(blocks, scales)
    save_file(packed, os.path.join(out, "blocks.safetensors"), metadata={"format": "pt"})
    save_file(values, os.path.join(out, "dequantised.safetensors"), metadata={"format": "pt"})
    for name in os.listdir(out):
        os.chmod(os.path.join(out, name), 0o644)


if __name__ == "__main__":
    main()
