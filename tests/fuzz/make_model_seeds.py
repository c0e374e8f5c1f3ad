#!/usr/bin/env python3
"""Makes the seeds of safetensors_fuzz and config_json_fuzz beside this file."""
import json
import os
import struct

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype, shape, begin, end):
    return json.dumps(dict(dtype=dtype, shape=shape, data_offsets=[begin, end]))


FILES = {
    "valid": safetensors('{"__metadata__":{"format":"pt"},"a":%s,"b":%s,"c":%s}  ' % (
        tensor("F32", [2, 2], 0, 16), tensor("BF16", [3], 16, 22), tensor("I16", [], 22, 24)),
        bytes(range(24))),
    "empty_tensor": safetensors('{"a":%s,"b":%s}' % (tensor("U8", [0, 7], 0, 0),
                                                     tensor("U8", [1], 0, 1)), b"x"),
    "no_tensors": safetensors("{}"),
    "sub_byte": safetensors('{"a":%s}' % tensor("F4", [4], 0, 2), b"xx"),
    "length_0": safetensors("{}", length=0),
    "length_max": safetensors("{}", length=2**64 - 1),
    "length_over_100_mb": safetensors("{}", length=100_000_001),
    "truncated_header": safetensors('{"a"', length=1000),
    "truncated_data": safetensors('{"a":%s}' % tensor("F32", [2], 0, 8), b"xxxx"),
    "overlap": safetensors('{"a":%s,"b":%s}' % (tensor("U8", [4], 0, 4), tensor("U8", [4], 2, 6)),
                           b"xxxxxx"),
    "hole": safetensors('{"a":%s,"b":%s}' % (tensor("U8", [2], 0, 2), tensor("U8", [2], 4, 6)),
                        b"xxxxxx"),
    "product_overflow": safetensors('{"a":%s}' % tensor("U8", [2**32, 2**32], 0, 0)),
    "duplicate": safetensors('{"a":%s,"a":%s}' % ((tensor("U8", [1], 0, 1),) * 2), b"x"),
    "not_utf8": safetensors(b'{"\xff\xfe":1}'),
    "nested": safetensors('{"a":' + "[" * 2000),
    "huge_offsets": safetensors('{"a":%s}' % tensor("U8", [1], 2**63 - 1, 2**63)),
    "short": b"\x01\x02\x03",
}

LLAMA = dict(model_type="llama", vocab_size=32, hidden_size=16, intermediate_size=24,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, rms_norm_eps=1e-5, tie_word_embeddings=True,
             eos_token_id=[1, 2], bos_token_id=0)
YARN = dict(rope_type="yarn", factor=4.0, rope_theta=10000.0, mscale=1.0, mscale_all_dim=0.8,
            beta_fast=32, beta_slow=1, truncate=False, original_max_position_embeddings=16)
LLAMA3 = dict(type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)

CONFIGS = {
    "llama": LLAMA,
    "llama3": dict(LLAMA, rope_scaling=LLAMA3, rope_theta=500000.0),
    "yarn": dict(LLAMA, rope_parameters=YARN),
    "linear": dict(LLAMA, rope_scaling=dict(type="linear", factor=2)),
    "qwen2": dict(LLAMA, model_type="qwen2", use_sliding_window=False, sliding_window=4096,
                  max_window_layers=28, layer_types=["full_attention"] * 2, dtype="bfloat16"),
    "qwen3": dict(LLAMA, model_type="qwen3", head_dim=6, attention_bias=False),
    "index": dict(metadata=dict(total_size=8),
                  weight_map={"model.norm.weight": "model-00001-of-00001.safetensors"}),
    "other_family": dict(LLAMA, model_type="gpt2"),
    "unknown_key": dict(LLAMA, mystery=1),
}


def main():
    for folder, files in (("safetensors", FILES), ("config_json", {
            name: json.dumps(value).encode() for name, value in CONFIGS.items()})):
        directory = os.path.join(HERE, folder)
        os.makedirs(directory, exist_ok=True)
        for name, content in files.items():
            with open(os.path.join(directory, name), "wb") as file:
                file.write(content)


if __name__ == "__main__":
    main()
