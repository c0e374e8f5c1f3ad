#!/usr/bin/env python3
"""Makes tests/golden/rope/rope_reference.json: rotary tables as transformers computes them.

Usage: make_rope_references.py [--out tests/golden/rope/rope_reference.json]

For each case config.json's content, and of the model's rotary embedding the inverse frequencies and
rows of cosine and sine (their first halves: the second repeat them) at a few positions.
"""
import argparse
import json
import os

import torch
from transformers import Gemma4TextConfig, LlamaConfig, Qwen2Config, Qwen3Config
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

SHAPE = dict(vocab_size=64, intermediate_size=64, num_hidden_layers=1)
POSITIONS = [0, 1, 2, 63, 1000, 4095]
CLASSES = dict(llama=(LlamaConfig, LlamaRotaryEmbedding), qwen2=(Qwen2Config, Qwen2RotaryEmbedding),
               qwen3=(Qwen3Config, Qwen3RotaryEmbedding),
               gemma4_text=(Gemma4TextConfig, Gemma4TextRotaryEmbedding))


def config(family, hidden, heads, positions, **keys):
    return dict(model_type=family, hidden_size=hidden, num_attention_heads=heads,
                num_key_value_heads=heads, max_position_embeddings=positions, **SHAPE, **keys)


CASES = {
    "default": config("llama", 512, 4, 4096),
    "default_theta_old_form": config("llama", 512, 4, 8192, rope_theta=500000.0),
    "default_odd_head_dim_half": config("llama", 60, 6, 4096, rope_theta=10000),
    "head_dim_apart": config("qwen3", 96, 4, 40960, head_dim=128,
                             rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    "linear_old_form": config("llama", 256, 4, 8192,
                              rope_scaling=dict(type="linear", factor=3.0), rope_theta=10000.0),
    "llama3": config("llama", 512, 4, 131072, rope_theta=500000.0,
                     rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                       high_freq_factor=4.0,
                                       original_max_position_embeddings=8192)),
    "llama3_new_form": config("llama", 256, 4, 131072,
                              rope_parameters=dict(rope_type="llama3", factor=32.0,
                                                   rope_theta=500000.0, low_freq_factor=1.0,
                                                   high_freq_factor=4.0,
                                                   original_max_position_embeddings=8192)),
    "llama3_original_beside": config("llama", 256, 4, 16384,
                                     original_max_position_embeddings=2048,
                                     rope_parameters=dict(rope_type="llama3", factor=8.0,
                                                          rope_theta=10000.0, low_freq_factor=1.0,
                                                          high_freq_factor=4.0)),
    "yarn": config("qwen2", 512, 4, 131072, rope_theta=1000000.0,
                   rope_scaling=dict(type="yarn", factor=4.0,
                                     original_max_position_embeddings=32768)),
    "yarn_attention_factor": config("llama", 256, 4, 8192,
                                    rope_parameters=dict(rope_type="yarn", factor=8.0,
                                                         rope_theta=10000.0, attention_factor=1.3,
                                                         beta_fast=16.0, beta_slow=2.0,
                                                         original_max_position_embeddings=1024)),
    "yarn_mscale_untruncated": config("llama", 256, 4, 8192,
                                      rope_parameters=dict(rope_type="yarn", factor=40.0,
                                                           rope_theta=10000.0, mscale=1.0,
                                                           mscale_all_dim=0.8, truncate=False,
                                                           original_max_position_embeddings=4096)),
    "yarn_original_absent": config("llama", 128, 4, 4096,
                                   rope_parameters=dict(rope_type="yarn", factor=2.0,
                                                        rope_theta=10000.0)),
    # Of the layers without a window.
    "proportional": config("gemma4_text", 128, 2, 8192, global_head_dim=72,
                           hidden_size_per_layer_input=0),
    "proportional_factor": config(
        "gemma4_text", 128, 2, 8192, global_head_dim=64, hidden_size_per_layer_input=0,
        rope_parameters=dict(
            full_attention=dict(rope_type="proportional", rope_theta=50000.0, factor=8.0,
                                partial_rotary_factor=0.4),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
}


def reference(keys):
    config_class, rope_class = CLASSES[keys["model_type"]]
    rope = rope_class(config_class(**json.loads(json.dumps(keys))))
    positions = torch.tensor([POSITIONS])
    by_kind = hasattr(rope, "full_attention_inv_freq")
    kind = dict(layer_type="full_attention") if by_kind else {}
    cosine, sine = rope(torch.zeros(1, dtype=torch.float32), positions, **kind)
    frequencies = rope.full_attention_inv_freq if by_kind else rope.inv_freq
    half = frequencies.numel()
    return dict(config=keys, inverse_frequencies=frequencies.tolist(), positions=POSITIONS,
                cosine=cosine[0, :, :half].tolist(), sine=sine[0, :, :half].tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "rope",
                                                      "rope_reference.json"))
    out = parser.parse_args().out
    os.makedirs(os.path.dirname(out), exist_ok=True)
    with open(out, "w") as file:
        json.dump({name: reference(keys) for name, keys in CASES.items()}, file)
        file.write("\n")


if __name__ == "__main__":
    main()
