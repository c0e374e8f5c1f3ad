#!/usr/bin/env python3
"""Makes tests/golden/hf: directories as transformers' save_pretrained writes them, a few KB each.

Usage: make_hf_directories.py [--out tests/golden/hf]

For each family a model of random weights with every tensor filled (norms and biases too, so that
no two tensors are alike), and expected.json: for each parameter its shape, its first three values
and the sum of its absolute values, from the model itself and not from the file.
"""
import argparse
import json
import os
import shutil

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers import Qwen3Config, Qwen3ForCausalLM

COMMON = dict(vocab_size=33, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
              bos_token_id=1, eos_token_id=2)

# name: (model class, config, dtype of the weights, save_pretrained's max_shard_size)
DIRECTORIES = {
    "llama": (LlamaForCausalLM, LlamaConfig(**COMMON, rms_norm_eps=1e-5), torch.float32, "5GB"),
    "llama3_sharded": (LlamaForCausalLM,
                       LlamaConfig(**COMMON, tie_word_embeddings=True,
                                   rope_parameters=dict(rope_type="llama3", rope_theta=500000.0,
                                                        factor=8.0, low_freq_factor=1.0,
                                                        high_freq_factor=4.0,
                                                        original_max_position_embeddings=32)),
                       torch.bfloat16, "3KB"),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**COMMON, tie_word_embeddings=True), torch.float16,
              "5GB"),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**COMMON, head_dim=6), torch.bfloat16, "5GB"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "hf"))
    out = parser.parse_args().out
    for name, (cls, config, dtype, shard) in DIRECTORIES.items():
        directory = os.path.join(out, name)
        shutil.rmtree(directory, ignore_errors=True)
        torch.manual_seed(7)
        model = cls(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5)
        model = model.to(dtype)
        model.save_pretrained(directory, max_shard_size=shard)
        expected = {
            key: dict(shape=list(value.shape), first=value.flatten()[:3].tolist(),
                      absolute_sum=value.double().abs().sum().item())
            for key, value in model.named_parameters()
        }
        with open(os.path.join(directory, "expected.json"), "w") as file:
            json.dump(expected, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
