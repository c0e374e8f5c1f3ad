#!/usr/bin/env python3
"""Makes tests/golden/models: small models and what transformers + PyTorch compute of them.

Usage: make_model_references.py [--out tests/golden/models] [family...]

For each family a directory with
  config.json, model.safetensors   a HF model directory; two to four layers, odd sizes
  gradients.safetensors            the FP32 gradient of every tensor on `batch` (below), and logits
  gradients_bf16_weights.safetensors
                                   the same with weights rounded to BF16; absent where the stored
                                   weights are representable in BF16, so that it would be equal
  tokens.bin                       uint16 stream of the loss curves: step k trains on the next
                                   global_batch sequences of sequence_length
  reference.json                   everything else; see write_reference
and choices/choices.json: loss curves of jobs that freeze tensors (requires_grad=False) or give
groups of them rates of their own (parameter groups); see CHOICES.

The batch of the logits and gradients holds packed documents (positions restart, documents do not
see each other), masked labels and padding. FP32 is PyTorch's FP32 on the CPU; FP64 is the same
model in double (with RMSNorm in double too, which transformers does in FP32); BF16 is
transformers with every weight and activation in BF16. All with SDPA attention but Gemma 2's and
gpt-oss', which transformers has without it alone, and experts in transformers' plain loop, which
alone takes every size.

A choice of experts is not continuous: where rounding changes one, neither gradients nor curves can
be compared. The families with experts therefore have embeddings and routers that leave no choice
in doubt (clear_choices). It is checked, not assumed: each token of the batch and of every step of
the curves goes to the same experts in FP64, FP32 and BF16, so that everything is compared in every
precision. Tensors of experts have the names of a file in which each expert's lie apart, as
transformers writes a fresh model; gpt-oss' are stacked there too.
"""
import argparse
import contextlib
import copy
import fnmatch
import json
import math
import os
import re
import shutil
import types

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers import (DeepseekV3Config, Ernie4_5Config, Exaone4Config, Gemma2Config,
                          Gemma3Config, Gemma3TextConfig, Gemma4Config, Gemma4TextConfig,
                          Glm4Config, Glm4MoeConfig, GptOssConfig, GraniteConfig, LlamaConfig,
                          Ministral3Config, Mistral3Config, MistralConfig,
                          MixtralConfig, Olmo2Config, Olmo3Config, Phi3Config, Qwen2Config,
                          Qwen3_5Config, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3Config,
                          Qwen3MoeConfig, Qwen3NextConfig, SeedOssConfig, SmolLM3Config, Trainer)

BATCH_SEQUENCES, BATCH_LENGTH = 3, 150
LOGIT_ROWS = 40
CURVE = dict(sequence_length=37, global_batch=4, steps=20, warmup_steps=10, learning_rate=3e-4,
             beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1)


def rope(**parameters):
    return dict(rope_parameters=parameters)


def old_rope(theta, **scaling):
    """The keys of config.json before transformers 5: rope_theta and rope_scaling."""
    return dict(rope_theta=theta, rope_scaling=scaling or None)


# name: (config class, keys, stored dtype, layout of config.json's rope keys)
# "old" configs are written as published models have them, "new" as transformers 5 saves them.
FAMILIES = {
    # Grouped queries by 3, head_dim 10; weights not representable in BF16.
    "llama": dict(cls=LlamaConfig, stored="F32", style="old",
                  keys=dict(vocab_size=259, hidden_size=60, num_hidden_layers=2,
                            num_attention_heads=6, num_key_value_heads=2, intermediate_size=100,
                            rms_norm_eps=1e-5, tie_word_embeddings=False),
                  rope=dict(rope_type="default", rope_theta=10000.0)),
    "llama_tied": dict(cls=LlamaConfig, stored="BF16", style="new",
                       keys=dict(vocab_size=259, hidden_size=64, num_hidden_layers=2,
                                 num_attention_heads=4, num_key_value_heads=4,
                                 intermediate_size=88, rms_norm_eps=1e-6,
                                 tie_word_embeddings=True),
                       rope=dict(rope_type="default", rope_theta=10000.0)),
    "llama3": dict(cls=LlamaConfig, stored="BF16", style="old",
                   keys=dict(vocab_size=1003, hidden_size=48, num_hidden_layers=2,
                             num_attention_heads=3, num_key_value_heads=1, intermediate_size=80,
                             head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=False),
                   rope=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=64)),
    "llama_linear": dict(cls=LlamaConfig, stored="BF16", style="old",
                         keys=dict(vocab_size=259, hidden_size=64, num_hidden_layers=4,
                                   num_attention_heads=2, num_key_value_heads=1,
                                   intermediate_size=72, rms_norm_eps=1e-6,
                                   tie_word_embeddings=False),
                         rope=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    "llama_yarn": dict(cls=LlamaConfig, stored="BF16", style="new",
                       keys=dict(vocab_size=259, hidden_size=48, num_hidden_layers=2,
                                 num_attention_heads=2, num_key_value_heads=2,
                                 intermediate_size=72, rms_norm_eps=1e-6,
                                 tie_word_embeddings=True),
                       rope=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
                                 original_max_position_embeddings=64)),
    "qwen2": dict(cls=Qwen2Config, stored="BF16", style="old",
                  keys=dict(vocab_size=1003, hidden_size=56, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, intermediate_size=76,
                            rms_norm_eps=1e-6, tie_word_embeddings=True),
                  rope=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen3": dict(cls=Qwen3Config, stored="BF16", style="new",
                  keys=dict(vocab_size=259, hidden_size=48, num_hidden_layers=3,
                            num_attention_heads=4, num_key_value_heads=2, intermediate_size=72,
                            head_dim=24, rms_norm_eps=1e-6, tie_word_embeddings=False),
                  rope=dict(rope_type="default", rope_theta=1000000.0)),
    # From here on: windows shorter than documents, padding ids that occur, odd sizes.
    "qwen2_window": dict(cls=Qwen2Config, stored="BF16", style="new",
                         keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=3,
                                   num_attention_heads=4, num_key_value_heads=2,
                                   intermediate_size=56, use_sliding_window=True,
                                   sliding_window=16, max_window_layers=1, pad_token_id=7,
                                   tie_word_embeddings=False),
                         rope=dict(rope_type="default", rope_theta=1000000.0)),
    "mistral": dict(cls=MistralConfig, stored="BF16", style="new",
                    keys=dict(vocab_size=131, hidden_size=36, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, intermediate_size=50,
                              head_dim=10, sliding_window=23, tie_word_embeddings=False),
                    rope=dict(rope_type="default", rope_theta=10000.0)),
    "ministral3": dict(cls=Ministral3Config, stored="BF16", style="new",
                       keys=dict(vocab_size=131, hidden_size=36, num_hidden_layers=2,
                                 num_attention_heads=4, num_key_value_heads=2,
                                 intermediate_size=50, head_dim=12, pad_token_id=11),
                       rope=dict(rope_type="yarn", rope_theta=1000000.0, factor=16.0,
                                 original_max_position_embeddings=32, beta_fast=32.0,
                                 beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                                 llama_4_scaling_beta=0.1)),
    "smollm3": dict(cls=SmolLM3Config, stored="BF16", style="new",
                    keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=4,
                              num_attention_heads=4, num_key_value_heads=2, intermediate_size=52,
                              no_rope_layer_interval=2, use_sliding_window=True,
                              sliding_window=19, pad_token_id=3),
                    rope=dict(rope_type="default", rope_theta=2000000.0)),
    "phi3": dict(cls=Phi3Config, stored="BF16", style="new",
                 keys=dict(vocab_size=131, hidden_size=64, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=2, intermediate_size=72,
                           original_max_position_embeddings=128, pad_token_id=9),
                 rope=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                           original_max_position_embeddings=128,
                           short_factor=[1.0, 1.05, 1.1, 1.3, 1.7, 2.2],
                           long_factor=[1.1, 1.5, 2.3, 4.0, 7.5, 13.0])),
    "granite": dict(cls=GraniteConfig, stored="BF16", style="new",
                    keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, intermediate_size=56,
                              embedding_multiplier=6.0, logits_scaling=0.4,
                              residual_multiplier=0.35, attention_multiplier=0.2,
                              tie_word_embeddings=True),
                    rope=dict(rope_type="default", rope_theta=10000.0)),
    "olmo2": dict(cls=Olmo2Config, stored="BF16", style="new",
                  keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, intermediate_size=52),
                  rope=dict(rope_type="default", rope_theta=500000.0)),
    "olmo3": dict(cls=Olmo3Config, stored="BF16", style="new",
                  keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=4, intermediate_size=52,
                            layer_types=["sliding_attention", "full_attention"],
                            sliding_window=21, pad_token_id=None),
                  rope=dict(full_attention=dict(rope_type="yarn", rope_theta=500000.0, factor=8.0,
                                                original_max_position_embeddings=64),
                            sliding_attention=dict(rope_type="default", rope_theta=500000.0))),
    "glm4": dict(cls=Glm4Config, stored="BF16", style="new",
                 keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                           num_attention_heads=4, num_key_value_heads=2, intermediate_size=52,
                           head_dim=12, pad_token_id=6),
                 rope=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    "gemma2": dict(cls=Gemma2Config, stored="BF16", style="new", attention="eager",
                   keys=dict(vocab_size=131, hidden_size=56, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, intermediate_size=60,
                             head_dim=14, query_pre_attn_scalar=20, sliding_window=18,
                             attn_logit_softcapping=4.0, final_logit_softcapping=3.0),
                   rope=dict(rope_type="default", rope_theta=10000.0)),
    "gemma3": dict(cls=Gemma3TextConfig, stored="BF16", style="new",
                   keys=dict(vocab_size=131, hidden_size=44, num_hidden_layers=2,
                             num_attention_heads=2, num_key_value_heads=1, intermediate_size=60,
                             head_dim=16, query_pre_attn_scalar=24, sliding_window=17,
                             sliding_window_pattern=2),
                   rope=dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0,
                                                 factor=8.0),
                             sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
    # Layers 1 and 2 have wider heads, fewer of keys, and these for values. With this seed
    # transformers' own BF16 errors are below the largest that the tests allow.
    "gemma4": dict(cls=Gemma4TextConfig, stored="BF16", style="new", seed=2,
                   keys=dict(vocab_size=131, hidden_size=44, num_hidden_layers=3,
                             num_attention_heads=4, num_key_value_heads=2, intermediate_size=60,
                             head_dim=12, global_head_dim=20, num_global_key_value_heads=1,
                             attention_k_eq_v=True, sliding_window=17,
                             layer_types=["sliding_attention"] + ["full_attention"] * 2,
                             hidden_size_per_layer_input=0, final_logit_softcapping=3.0),
                   rope=dict(full_attention=dict(rope_type="proportional", rope_theta=1000000.0,
                                                 partial_rotary_factor=0.25),
                             sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
    # Inputs of each layer from the token. The last two layers, with wider units, take keys and
    # values from the first two. `branches` and `heads`: factors of the norms behind parts and of
    # queries and keys, with which the BF16 errors of so many parts stay below the largest that the
    # tests allow.
    "gemma4_shared": dict(cls=Gemma4TextConfig, stored="BF16", style="new", seed=2, branches=0.3,
                          heads=0.3,
                          keys=dict(vocab_size=131, vocab_size_per_layer_input=137, hidden_size=48,
                                    num_hidden_layers=4, num_attention_heads=4,
                                    num_key_value_heads=2, intermediate_size=44, head_dim=12,
                                    global_head_dim=16, sliding_window=17,
                                    layer_types=["sliding_attention", "full_attention"] * 2,
                                    num_kv_shared_layers=2, use_double_wide_mlp=True,
                                    hidden_size_per_layer_input=16, final_logit_softcapping=3.0),
                          rope=dict(full_attention=dict(rope_type="proportional",
                                                        rope_theta=1000000.0,
                                                        partial_rotary_factor=0.25),
                                    sliding_attention=dict(rope_type="default",
                                                           rope_theta=10000.0))),
    # Layer 0 has a window.
    "exaone4": dict(cls=Exaone4Config, stored="BF16", style="new",
                    keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, intermediate_size=52,
                              head_dim=20, sliding_window=22, sliding_window_pattern=2,
                              pad_token_id=5),
                    rope=dict(rope_type="llama3", rope_theta=1000000.0, factor=16.0,
                              low_freq_factor=1.0, high_freq_factor=4.0,
                              original_max_position_embeddings=64)),
    # With this seed transformers' own BF16 errors of biases of keys, which have 20 elements and of
    # which the softmax takes most away, are below the largest that the tests allow.
    "seed_oss": dict(cls=SeedOssConfig, stored="BF16", style="old", seed=2,
                     keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                               num_attention_heads=6, num_key_value_heads=2, intermediate_size=52,
                               head_dim=10, attention_out_bias=True, attention_dropout=0.0,
                               residual_dropout=0.0, pad_token_id=8),
                     rope=dict(rope_type="default", rope_theta=10000000.0)),
    "ernie4_5": dict(cls=Ernie4_5Config, stored="BF16", style="new",
                     keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                               num_attention_heads=4, num_key_value_heads=2, intermediate_size=52,
                               head_dim=14, pad_token_id=4),
                     rope=dict(rope_type="default", rope_theta=500000.0)),
    # With experts.
    "mixtral": dict(cls=MixtralConfig, stored="BF16", head=0.3, style="old",
                    keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, intermediate_size=28,
                              num_local_experts=8, num_experts_per_tok=2,
                              router_aux_loss_coef=0.02),
                    rope=dict(rope_type="default", rope_theta=1000000.0)),
    # Layers 1 and 3 have experts.
    "qwen3_moe": dict(cls=Qwen3MoeConfig, stored="BF16", head=0.3, style="old",
                      keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=4,
                                num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                                intermediate_size=52, moe_intermediate_size=22, num_experts=8,
                                num_experts_per_tok=3, norm_topk_prob=True,
                                decoder_sparse_step=2),
                      rope=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen3_moe_plain": dict(cls=Qwen3MoeConfig, stored="BF16", head=0.3, style="new",
                            keys=dict(vocab_size=131, hidden_size=36, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                                      intermediate_size=52, moe_intermediate_size=26,
                                      num_experts=5, num_experts_per_tok=2, norm_topk_prob=False,
                                      mlp_only_layers=[0], use_sliding_window=True,
                                      sliding_window=21, pad_token_id=5),
                            rope=dict(rope_type="default", rope_theta=10000.0)),
    # With this seed transformers' own BF16 errors of sinks and routers' biases, which have six
    # elements, are like those of other tensors, and not less by chance.
    "gpt_oss": dict(cls=GptOssConfig, stored="BF16", style="new", attention="eager",
                    head=0.3, seed=890,
                    keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                              num_attention_heads=6, num_key_value_heads=2, head_dim=10,
                              intermediate_size=26, num_local_experts=6, num_experts_per_tok=2,
                              sliding_window=19, swiglu_limit=3.5, swiglu_alpha=1.5,
                              router_aux_loss_coef=0.9),
                    rope=dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0,
                              beta_slow=1.0, truncate=False,
                              original_max_position_embeddings=32)),
    "glm4_moe": dict(cls=Glm4MoeConfig, stored="BF16", head=0.3, style="new",
                     keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                               num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                               intermediate_size=52, moe_intermediate_size=18, n_routed_experts=12,
                               num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1,
                               n_group=4, topk_group=2, routed_scaling_factor=1.5,
                               attention_bias=True, use_qk_norm=True, pad_token_id=6),
                     rope=dict(rope_type="default", rope_theta=1000000.0,
                               partial_rotary_factor=0.5)),
    # Values narrower than keys, a yarn whose mscales differ, and biases of the latents. With this seed
    # transformers' own BF16 errors of experts that few tokens choose are like those of the others.
    "deepseek_v3": dict(cls=DeepseekV3Config, stored="BF16", head=0.3, style="new", seed=7,
                        keys=dict(vocab_size=131, hidden_size=44, num_hidden_layers=2,
                                  num_attention_heads=3, num_key_value_heads=3,
                                  q_lora_rank=20, kv_lora_rank=14, qk_nope_head_dim=10,
                                  qk_rope_head_dim=6, v_head_dim=12, attention_bias=True,
                                  intermediate_size=52, moe_intermediate_size=18,
                                  n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=2,
                                  first_k_dense_replace=1, n_group=4, topk_group=2,
                                  routed_scaling_factor=1.5),
                        rope=dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, mscale=0.7,
                                  mscale_all_dim=1.1, original_max_position_embeddings=32)),
    # Queries without a latent, values wider than keys, halves that rotate, one group.
    "deepseek_v3_plain": dict(cls=DeepseekV3Config, stored="BF16", head=0.3, style="new",
                              keys=dict(vocab_size=131, hidden_size=44, num_hidden_layers=3,
                                        num_attention_heads=4, num_key_value_heads=4,
                                        q_lora_rank=None, kv_lora_rank=18, qk_nope_head_dim=6,
                                        qk_rope_head_dim=10, v_head_dim=20, rope_interleave=False,
                                        intermediate_size=52, moe_intermediate_size=18,
                                        n_routed_experts=6, num_experts_per_tok=2,
                                        n_shared_experts=1, first_k_dense_replace=2, n_group=1,
                                        topk_group=1, norm_topk_prob=False,
                                        routed_scaling_factor=1.5),
                              rope=dict(rope_type="default", rope_theta=10000.0)),
    # The results of delta nets, which their norms divide by, are small where a query and all keys are
    # nearly orthogonal. The norms' epsilon keeps transformers' own BF16 errors of gradients, which
    # grow by that, below the largest that the tests allow.
    # Layer 0 has a delta net and experts, 1 attention and experts, 2 a delta net and an MLP. With
    # this seed transformers' own BF16 errors of decays, which have six elements, are like those of
    # other tensors, and not less by chance; so it is for the norms of the wrapper below.
    "qwen3_next": dict(cls=Qwen3NextConfig, stored="BF16", head=0.3, style="new", seed=14,
                       keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=3,
                                 num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                 intermediate_size=52, moe_intermediate_size=22, num_experts=8,
                                 num_experts_per_tok=3, shared_expert_intermediate_size=18,
                                 mlp_only_layers=[2], linear_num_key_heads=2,
                                 linear_num_value_heads=6, linear_key_head_dim=8,
                                 linear_value_head_dim=12, pad_token_id=5,
                                 rms_norm_eps=1e-3,
                                 layer_types=["linear_attention", "full_attention",
                                              "linear_attention"]),
                       rope=dict(rope_type="default", rope_theta=10000.0,
                                 partial_rotary_factor=0.25)),
    "qwen3_5_moe": dict(cls=Qwen3_5MoeTextConfig, stored="BF16", head=0.3, style="new",
                        keys=dict(vocab_size=131, hidden_size=36, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                  moe_intermediate_size=22, num_experts=8, num_experts_per_tok=3,
                                  shared_expert_intermediate_size=18, linear_num_key_heads=3,
                                  linear_num_value_heads=6, linear_key_head_dim=12,
                                  linear_value_head_dim=8, linear_conv_kernel_dim=3,
                                  rms_norm_eps=1e-3,
                                  layer_types=["linear_attention", "full_attention"]),
                        rope=dict(rope_type="default", rope_theta=10000.0,
                                  partial_rotary_factor=0.25)),
    # Experts beside a dense unit. With this seed the norms' own BF16 errors are like those of other
    # tensors, and not less by chance.
    "gemma4_moe": dict(cls=Gemma4TextConfig, stored="BF16", head=0.3, style="new", seed=3,
                       keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                                 num_attention_heads=4, num_key_value_heads=2,
                                 intermediate_size=52, head_dim=12, global_head_dim=20,
                                 num_global_key_value_heads=1, attention_k_eq_v=True,
                                 sliding_window=19, hidden_size_per_layer_input=0,
                                 layer_types=["sliding_attention", "full_attention"],
                                 enable_moe_block=True, num_experts=8, top_k_experts=3,
                                 moe_intermediate_size=22, tie_word_embeddings=False),
                       rope=dict(full_attention=dict(rope_type="proportional",
                                                     rope_theta=1000000.0,
                                                     partial_rotary_factor=0.25),
                                 sliding_attention=dict(rope_type="default",
                                                        rope_theta=10000.0))),
    # Wrappers: their text models are trained, by themselves, in the tests. `absent`: keys that are
    # left out of config.json, as published models do; the class has their values.
    # Another seed than its name's gives a norm whose gradient's BF16 error is like the others'.
    "gemma3_wrapper": dict(cls=Gemma3TextConfig, stored="BF16", style="new", wrapper=Gemma3Config,
                           seed=1,
                           absent=["tie_word_embeddings"],
                           around=dict(mm_tokens_per_image=4, image_token_index=130,
                                       boi_token_index=128, eoi_token_index=129,
                                       vision_config=dict(model_type="siglip_vision_model",
                                                          hidden_size=12, intermediate_size=20,
                                                          num_hidden_layers=1, image_size=28,
                                                          num_attention_heads=2, patch_size=7,
                                                          vision_use_head=False)),
                           keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                                     num_attention_heads=2, num_key_value_heads=1,
                                     intermediate_size=52, head_dim=16, query_pre_attn_scalar=24,
                                     sliding_window=17, sliding_window_pattern=2),
                           rope=dict(full_attention=dict(rope_type="linear",
                                                         rope_theta=1000000.0, factor=8.0),
                                     sliding_attention=dict(rope_type="default",
                                                            rope_theta=10000.0))),
    # `published`: keys of published models, which transformers saves in per_layer_config. The ids of
    # images and sounds are beyond the vocabulary: the wrapper replaces their embeddings.
    "gemma4_wrapper": dict(cls=Gemma4TextConfig, stored="BF16", style="new", wrapper=Gemma4Config,
                           published=dict(global_head_dim=24, num_global_key_value_heads=None),
                           around=dict(vision_config=dict(hidden_size=12, intermediate_size=20,
                                                          num_hidden_layers=1, head_dim=6,
                                                          num_attention_heads=2,
                                                          num_key_value_heads=2, patch_size=4,
                                                          position_embedding_size=16)),
                           keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                                     num_attention_heads=2, num_key_value_heads=1,
                                     intermediate_size=52, head_dim=16, global_head_dim=24,
                                     sliding_window=19, hidden_size_per_layer_input=0,
                                     use_bidirectional_attention="vision",
                                     layer_types=["sliding_attention", "full_attention"]),
                           rope=dict(full_attention=dict(rope_type="proportional",
                                                         rope_theta=1000000.0,
                                                         partial_rotary_factor=0.5),
                                     sliding_attention=dict(rope_type="default",
                                                            rope_theta=10000.0))),
    # Its head differs from the embedding, which tie_word_embeddings, true by default, does not tie.
    "mistral3_wrapper": dict(cls=MistralConfig, stored="BF16", style="new", wrapper=Mistral3Config,
                             absent=["tie_word_embeddings"],
                             around=dict(image_token_index=10, spatial_merge_size=2,
                                         vision_config=dict(model_type="pixtral", hidden_size=12,
                                                            intermediate_size=20, head_dim=6,
                                                            num_hidden_layers=1, image_size=28,
                                                            num_attention_heads=2, patch_size=7)),
                             keys=dict(vocab_size=131, hidden_size=36, num_hidden_layers=2,
                                       num_attention_heads=4, num_key_value_heads=2,
                                       intermediate_size=50, head_dim=10, sliding_window=None,
                                       tie_word_embeddings=False),
                             rope=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen3_5_wrapper": dict(cls=Qwen3_5TextConfig, stored="BF16", style="new", seed=1,
                            wrapper=Qwen3_5Config,
                            around=dict(image_token_id=130, video_token_id=129,
                                        vision_start_token_id=127, vision_end_token_id=128,
                                        vision_config=dict(depth=1, hidden_size=12, num_heads=2,
                                                           intermediate_size=20, patch_size=4,
                                                           out_hidden_size=40,
                                                           num_position_embeddings=16)),
                            keys=dict(vocab_size=131, hidden_size=40, num_hidden_layers=2,
                                      num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                                      intermediate_size=52, linear_num_key_heads=2,
                                      linear_num_value_heads=6, linear_key_head_dim=8,
                                      linear_value_head_dim=12, rms_norm_eps=1e-3,
                                      layer_types=["linear_attention", "full_attention"]),
                            rope=dict(rope_type="default", rope_theta=10000.0,
                                      partial_rotary_factor=0.25, mrope_interleaved=True,
                                      mrope_section=[1, 1, 0])),
}


# name: (family, training.freeze, optimizer.groups as (match, learning_rate, weight_decay))
CHOICES = {
    "prefix": ("llama_linear", ["model.embed_tokens.*", "model.layers.[01].*"], []),
    "suffix": ("qwen3", ["lm_head.*", "model.norm.*", "model.layers.2.*"], []),
    "head_alone": ("llama", ["model.*"], []),
    "tied_by_the_head": ("qwen2", ["lm_head.weight", "model.layers.0.*"], []),
    "tied_all": ("llama_tied", ["model.embed_tokens.*", "model.norm.*"], []),
    "parts": ("qwen2", ["*.bias", "*.q_proj.weight", "*.up_proj.weight", "model.norm.weight"], []),
    "key_bias": ("qwen2", ["*.k_proj.*", "*.gate_proj.weight"], []),
    "lowest_layer_mlp": ("qwen3", ["model.embed_tokens.*", "*self_attn*", "*input_layernorm*",
                                   "model.layers.0.post*"], []),
    "lowest_layer_q": ("llama", ["model.embed_tokens.*", "model.layers.0.input_layernorm.weight",
                                 "model.layers.0.mlp.*", "*.v_proj.weight"], []),
    "rates": ("llama", [], [("model.layers.0.*", 1e-4, None), ("*.mlp.*", 1e-3, 0.0),
                            ("lm_head.*", None, 5.0)]),
    "rates_and_frozen": ("qwen2", ["model.layers.0.mlp.*"],
                         [("model.embed_tokens.*", 3e-5, 0.0), ("*.q_proj.*", 0.0, None)]),
    # So strong that the curve tells which tensors decay. These families have some that do with one
    # dimension, or do not with two.
    "decay_gpt_oss": ("gpt_oss", [], [("*", None, 100.0)]),
    "decay_qwen3_next": ("qwen3_next", [], [("*", None, 100.0)]),
}


def round_to_bf16(x):
    """To nearest, ties away from zero: as the masters' upper half is rounded."""
    bits = x.detach().float().contiguous().view(torch.int32)
    return ((bits + 0x8000) & ~0xFFFF).view(torch.float32)


def auto_class(name):
    return AutoModelForImageTextToText if "wrapper" in FAMILIES[name] else AutoModelForCausalLM


def text_parameters(model):
    """Those of the text model with their names in the text family; all, if it is no wrapper."""
    wrapped = "model.language_model."
    parameters = list(model.named_parameters())
    if any(k.startswith(wrapped) for k, _ in parameters):
        return [(k.replace(wrapped, "model."), p) for k, p in parameters
                if k.startswith(wrapped) or k == "lm_head.weight"]
    return parameters


def write_config(config, style, rope_keys, dtype, directory, auto, absent, published):
    config.save_pretrained(directory)
    path = os.path.join(directory, "config.json")
    with open(path) as f:
        keys = json.load(f)
    for unused in ("transformers_version", "_name_or_path", *absent):
        keys.pop(unused, None)
    if published:
        text = keys.get("text_config", keys)
        del text["per_layer_config"]
        text.update(published)
    keys["architectures"] = [type(auto.from_config(config)).__name__]
    if style == "old":
        keys.pop("rope_parameters")
        keys.pop("dtype", None)
        keys["torch_dtype"] = dtype
        keys["rope_theta"] = rope_keys["rope_theta"]
        scaling = {k: v for k, v in rope_keys.items() if k != "rope_theta"}
        keys["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
        if keys["model_type"] == "qwen3_moe":
            keys["num_experts"] = keys.pop("num_local_experts")
    else:
        keys["dtype"] = dtype
    with open(path, "w") as f:
        json.dump(keys, f, indent=2, sort_keys=True)
        f.write("\n")


def is_router(module):
    return type(module).__name__.lower().endswith(("topkrouter", "textrouter"))


def has_own_input(router):
    return hasattr(router, "per_expert_scale")  # Gemma 4


def router_logits(router, x):
    if has_own_input(router):
        return router.proj(router.norm(x) * router.scale * router.scalar_root_size)
    return torch.nn.functional.linear(x, router.weight, getattr(router, "bias", None))


def choose(router, logits):
    """The weights and experts of each token, and the least change of a score that changes them."""
    k = router.config.top_k_experts if has_own_input(router) else router.top_k
    correction = getattr(router, "e_score_correction_bias", None)
    if correction is None and hasattr(router, "bias"):  # gpt-oss
        top, choice = logits.topk(k)
        ranked, weights = logits, top.softmax(-1)
        margin = torch.full(logits.shape[:1], math.inf, dtype=logits.dtype)
    elif correction is None:
        ranked = logits.softmax(-1)
        weights, choice = ranked.topk(k)
        if getattr(router, "norm_topk_prob", True):
            weights = weights / weights.sum(-1, keepdim=True)
        if has_own_input(router):
            weights = weights * router.per_expert_scale[choice]
        margin = torch.full(logits.shape[:1], math.inf, dtype=logits.dtype)
    else:
        scores = logits.sigmoid()
        ranked = scores + correction
        groups = ranked.view(-1, router.num_group, router.num_experts // router.num_group)
        sums = groups.topk(2, -1).values.sum(-1)
        kept = sums.topk(router.topk_group, -1).indices
        order = sums.sort(-1, descending=True).values
        margin = torch.full(logits.shape[:1], math.inf, dtype=logits.dtype)
        if router.topk_group < router.num_group:
            margin = order[:, router.topk_group - 1] - order[:, router.topk_group]
        mask = torch.ones_like(sums, dtype=torch.bool).scatter(1, kept, False)
        ranked = groups.masked_fill(mask[:, :, None], -math.inf).view_as(scores)
        choice = ranked.topk(k).indices
        weights = scores.gather(1, choice)
        if router.norm_topk_prob:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = weights * router.routed_scaling_factor
    order = ranked.sort(-1, descending=True).values
    return weights, choice, torch.minimum(margin, order[:, k - 1] - order[:, k])


def plain_route(self, x):
    """A router in the type of its input; transformers' are in FP32 in part."""
    logits = router_logits(self, x.reshape(-1, x.shape[-1]))
    weights, choice, _ = choose(self, logits)
    return logits, weights, choice


@contextlib.contextmanager
def watched_choices(model):
    """Collects of each router's call which experts each token goes to, and the least margin."""
    seen = []

    def note(router, _, output):
        logits, _, choice = output
        if has_own_input(router) and router.forward.__func__ is not plain_route:
            logits = logits.log()  # it returns their softmax
        margin = choose(router, logits.detach().double())[2].min().item()
        seen.append((choice.sort(-1).values, margin))

    hooks = [m.register_forward_hook(note) for m in model.modules() if is_router(m)]
    yield seen
    for hook in hooks:
        hook.remove()


def differing(a, b):
    """The number of choices of experts in which two collections differ."""
    assert len(a) == len(b)
    return sum(int((x != y).any(-1).sum()) for (x, _), (y, _) in zip(a, b))


CODE = 12  # elements of the embedding that routers look at
CODE_SCALE = 2.5
# The least margins of scores that count as clear.
CLEAR = dict(MixtralTopKRouter=0.15, Qwen3MoeTopKRouter=0.11, GptOssTopKRouter=0.7,
             Glm4MoeTopkRouter=0.15, DeepseekV3TopkRouter=0.15, Qwen3NextTopKRouter=0.11,
             Qwen3_5MoeTopKRouter=0.11, Gemma4TextRouter=0.11)


def clear_choices(model, generator, rounded):
    """Makes experts depend on the first elements of a token's embedding, and the choice clear.

    Attention and experts add little to these elements. Each token's are drawn until no router that
    sees them alone is in doubt.
    """
    pairs = [(layer.post_attention_layernorm, module) for layer in model.model.layers
             for module in layer.mlp.children() if is_router(module)]
    pairs += [(lambda x: x, layer.router) for layer in model.model.layers
              if hasattr(layer, "router")]
    table = model.model.embed_tokens.weight
    with torch.no_grad():
        for name, p in model.model.layers.named_parameters():
            if "o_proj" in name or "out_proj" in name or "down_proj" in name:
                transposed = model.config.model_type == "gpt_oss" and name.endswith("down_proj")
                written = p if "bias" in name or transposed else p.transpose(-1, -2)
                written[..., :CODE] *= 0.25
        for _, router in pairs:
            own = has_own_input(router)
            weight = router.proj.weight if own else router.weight
            factor = math.sqrt(weight.shape[1]) if own else 1.0
            weight[:, CODE:] = rounded(0.5 * factor * weight[:, CODE:])
            noise = torch.randn(weight.shape[0], CODE, generator=generator)
            weight[:, :CODE] = rounded(0.3 * factor * noise)
            if hasattr(router, "e_score_correction_bias"):
                noise = torch.randn(router.num_experts, generator=generator)
                router.e_score_correction_bias.copy_(0.1 * noise)
        open_tokens = torch.arange(table.shape[0])
        while len(open_tokens):
            noise = torch.randn(len(open_tokens), CODE, generator=generator)
            table[open_tokens, :CODE] = rounded(CODE_SCALE * noise)
            rows = table[open_tokens]
            clear = torch.ones(len(open_tokens), dtype=torch.bool)
            for norm, router in pairs:
                logits = router_logits(router, norm(rows))
                clear &= choose(router, logits)[2] > CLEAR[type(router).__name__]
            open_tokens = open_tokens[~clear]


def disk_tensors(model, tensors):
    """The tensors of a model under the names of its file; see the head of this script."""
    kind = model.config.model_type
    if kind not in ("mixtral", "qwen3_moe", "glm4_moe", "deepseek_v3", "qwen3_next",
                    "qwen3_5_moe_text"):
        return tensors
    names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    disk = {}
    for name, tensor in tensors.items():
        if kind == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        head, _, tail = name.rpartition(".")
        if not head.endswith(".experts"):
            disk[name] = tensor
            continue
        for e, part in enumerate(tensor):
            gate, up, down = (f"{head}.{e}.{n}.weight" for n in names)
            if tail == "gate_up_proj":
                disk[gate], disk[up] = part.chunk(2)
            else:
                disk[down] = part
    return disk


def seed_of(name):
    return FAMILIES[name].get("seed", sum(map(ord, name)))


def adds_one(name, key):
    """Whether a norm of the family multiplies by 1 + weight."""
    return name.startswith(("gemma2", "gemma3")) or (
        name.startswith(("qwen3_next", "qwen3_5"))
        and not key.endswith("linear_attn.norm.weight"))


def make_model(name, directory):
    """Random weights for which no gradient is negligible."""
    family = FAMILIES[name]
    config = family["cls"](max_position_embeddings=256, bos_token_id=0, eos_token_id=1,
                           rope_parameters=dict(family["rope"]), use_cache=True,
                           **family["keys"])
    if "wrapper" in family:
        config = family["wrapper"](text_config=config.to_dict(), **family["around"],
                                   tie_word_embeddings=config.tie_word_embeddings)
    write_config(config, family["style"], family["rope"],
                 {"F32": "float32", "BF16": "bfloat16"}[family["stored"]], directory,
                 auto_class(name), family.get("absent", []), family.get("published", {}))
    model = auto_class(name).from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed_of(name))
    rounded = round_to_bf16 if family["stored"] == "BF16" else lambda x: x
    state = {}
    for key, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if re.search(r"norm(_\d)?\.weight$", key):
            value = 0.2 * noise if adds_one(name, key) else 1.0 + 0.2 * noise
            if name.startswith("gemma4") and key.endswith(("q_norm.weight", "k_norm.weight")):
                # Its scores are not divided by sqrt(head_dim).
                value = family.get("heads", 0.45) * value
            if "post_" in key:
                value = family.get("branches", 1.0) * value
        elif key.endswith("A_log"):  # from heads that forget at once to heads that hardly do
            value = 1.5 * noise - 2.0
        elif key.endswith("conv1d.weight"):
            value = noise
        elif key.endswith("bias"):
            value = 0.3 * noise
            if key.endswith("gate_up_proj_bias"):  # gate and up in turn; see check_clamps
                value[:, [0, 3, 5]] = torch.tensor([7.0, 7.0, -7.0])
        elif "embed_tokens" in key:
            value = 0.15 * noise
        elif key.endswith(("router.scale", "per_expert_scale")):
            value = 1.0 + 0.2 * noise
        elif key.endswith("sinks"):
            value = noise
        elif key == "lm_head.weight":
            value = family.get("head", 0.09) * noise
        else:
            value = 0.09 * noise
        state[key] = rounded(value)
    # A factor of each layer's result, which is no parameter.
    scalars = {k: b for k, b in model.named_buffers() if k.endswith("layer_scalar")}
    with torch.no_grad():
        for scalar in scalars.values():
            noise = torch.randn(scalar.shape, generator=generator)
            scalar.copy_(rounded(0.8 + 0.2 * noise))
    routers = {k: m for k, m in model.named_modules() if is_router(m)}
    if routers:
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.copy_(state[key])
        clear_choices(model, generator, rounded)
        state = disk_tensors(model, {k: p.detach() for k, p in model.named_parameters()})
    stored = torch.bfloat16 if family["stored"] == "BF16" else torch.float32
    if "wrapper" in family:  # save_pretrained has names of its own for these
        with open(os.path.join(directory, "config.json")) as f:
            keys = f.read()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.copy_(state[key])
        model.to(stored).save_pretrained(directory)
        with open(os.path.join(directory, "config.json"), "w") as f:
            f.write(keys)
        os.remove(os.path.join(directory, "generation_config.json"))
        return
    state = {k: v.to(stored).contiguous() for k, v in {**state, **scalars}.items()}
    for key, router in routers.items():  # kept in FP32 by transformers
        if hasattr(router, "e_score_correction_bias"):
            state[key + ".e_score_correction_bias"] = router.e_score_correction_bias
    save_file(state, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})


def make_batch(vocabulary, seed):
    """Packed documents, masked labels, padding: the fields of engine/data/sequences/sequence.h."""
    rng = np.random.default_rng(seed)
    lengths = [[150], [61, 1, 37, 51], [17, 84, -49]]  # negative: padding
    batch = dict(input_ids=[], labels=[], position_ids=[], document_ids=[])
    for row in lengths:
        ids, labels, positions, documents = [], [], [], []
        for index, length in enumerate(row):
            n = abs(length)
            tokens = rng.integers(0, vocabulary, n) if length > 0 else np.full(n, 2)
            target = tokens.copy()
            if length < 0:
                target[:] = -100
            elif length > 30:  # a prompt that does not count
                target[: length // 4] = -100
            ids += tokens.tolist()
            labels += target.tolist()
            positions += list(range(n))
            documents += [index if length > 0 else -1] * n
        batch["input_ids"].append(ids)
        batch["labels"].append(labels)
        batch["position_ids"].append(positions)
        batch["document_ids"].append(documents)
    return batch


def targets_of(batch):
    """Label of the next token where that is of the same document, else -100."""
    labels = torch.tensor(batch["labels"])
    documents = torch.tensor(batch["document_ids"])
    targets = torch.full_like(labels, -100)
    same = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] >= 0)
    targets[:, :-1] = torch.where(same, labels[:, 1:], torch.full_like(labels[:, 1:], -100))
    return targets


def plain_norm(self, x):
    weight = getattr(self, "weight", 1)
    if type(self).__name__.startswith(("Gemma2", "Gemma3", "Qwen3Next", "Qwen3_5")):
        weight = 1 + weight
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon_))


def plain_delta_net(self, hidden_states, **_):
    """A gated delta net token by token, in the type of its input; transformers' is FP32 in part."""
    keys, heads = self.num_k_heads, self.num_v_heads
    batch, n = hidden_states.shape[:2]
    by_head = lambda x, count: x.reshape(batch, n, count, -1)
    if hasattr(self, "in_proj_qkvz"):
        *qkvz, b, a = self.fix_query_key_value_ordering(self.in_proj_qkvz(hidden_states),
                                                        self.in_proj_ba(hidden_states))
        mixed, z = torch.cat([x.reshape(batch, n, -1) for x in qkvz[:3]], -1), qkvz[3]
    else:
        mixed, z = self.in_proj_qkv(hidden_states), by_head(self.in_proj_z(hidden_states), heads)
        b, a = self.in_proj_b(hidden_states), self.in_proj_a(hidden_states)
    kernel = self.conv_kernel_size
    padded = torch.nn.functional.pad(mixed, (0, 0, kernel - 1, 0))
    mixed = sum(padded[:, j : j + n] * self.conv1d.weight[:, 0, j] for j in range(kernel))
    mixed = torch.nn.functional.silu(mixed)
    q, k, v = mixed.split([self.key_dim, self.key_dim, self.value_dim], -1)
    q, k = (by_head(x, keys).repeat_interleave(heads // keys, 2) for x in (q, k))
    q, k = (x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q, v, beta = q * self.head_k_dim**-0.5, by_head(v, heads), b.sigmoid()
    decay = torch.exp(-self.A_log.exp() * torch.nn.functional.softplus(a + self.dt_bias))
    state, rows = torch.zeros(batch, heads, self.head_k_dim, self.head_v_dim, dtype=q.dtype), []
    for t in range(n):
        state = state * decay[:, t, :, None, None]
        change = (v[:, t] - (state * k[:, t, :, :, None]).sum(2)) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * change[:, :, None]
        rows.append((state * q[:, t, :, :, None]).sum(2))
    x = torch.stack(rows, 1)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.layer_norm_epsilon)
    x = self.norm.weight * x * torch.nn.functional.silu(z)
    return self.out_proj(x.reshape(batch, n, -1))


def is_delta_net(module):
    return type(module).__name__.endswith("GatedDeltaNet")


def to_double(model):
    model = copy.deepcopy(model).double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.epsilon_ = getattr(module, "variance_epsilon", None) or module.eps
            module.forward = types.MethodType(plain_norm, module)
        if is_router(module):
            module.forward = types.MethodType(plain_route, module)
        if is_delta_net(module):
            module.forward = types.MethodType(plain_delta_net, module)
    return model


def to_bf16(model):
    model = copy.deepcopy(model).to(torch.bfloat16)
    for module in model.modules():
        if hasattr(module, "e_score_correction_bias"):
            module.e_score_correction_bias = module.correction_.clone()
    return model


def document_ends(documents):
    """The ranges of the documents of one sequence."""
    begin = 0
    while begin < len(documents):
        end = begin + 1
        while end < len(documents) and documents[end] == documents[begin]:
            end += 1
        yield begin, end
        begin = end


def logits_alone(model, batch):
    """The logits of models whose documents see each other when they are packed: of each alone."""
    ids, documents = torch.tensor(batch["input_ids"]), batch["document_ids"]
    if all(len(set(row)) == 1 for row in documents):
        return model(ids, use_cache=False).logits
    return torch.stack([torch.cat([model(row[None, begin:end], use_cache=False).logits[0]
                                   for begin, end in document_ends(own)])
                        for row, own in zip(ids, documents)])


def forward_loss(model, batch):
    """Logits, and the loss summed over unmasked predictions over their number."""
    logits = (logits_alone if any(map(is_delta_net, model.modules())) else packed_logits)(model,
                                                                                         batch)
    targets = targets_of(batch)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    loss = torch.nn.functional.cross_entropy(
        wide.reshape(-1, wide.shape[-1]), targets.reshape(-1), ignore_index=-100,
        reduction="sum") / (targets >= 0).sum()
    return logits, loss


def packed_logits(model, batch):
    ids = torch.tensor(batch["input_ids"])
    documents = torch.tensor(batch["document_ids"])
    n = ids.shape[1]
    same = documents[:, :, None] == documents[:, None, :]
    causal = torch.tril(torch.ones(n, n, dtype=torch.bool))
    dtype = next(model.parameters()).dtype

    def bias(visible):
        mask = (same & visible)[:, None]
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)

    config = model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    # A mask that is given is taken as it is, so that windows must be in it.
    sliding = causal & ~torch.tril(torch.ones(n, n, dtype=torch.bool), -window) if window else causal
    kinds = set(getattr(config, "layer_types", None) or [])
    if len(kinds) > 1:
        mask = dict(full_attention=bias(causal), sliding_attention=bias(sliding))
    else:
        mask = bias(sliding)
    return model(input_ids=ids, attention_mask=mask,
                 position_ids=torch.tensor(batch["position_ids"]), use_cache=False).logits


def load(directory, dtype=torch.float32, rounded=False):
    name = os.path.basename(directory)
    attention = FAMILIES[name].get("attention", "sdpa")
    model = auto_class(name).from_pretrained(directory, dtype=torch.float32,
                                             attn_implementation=attention,
                                             experts_implementation="eager")
    assert model.config._attn_implementation == attention
    if rounded:
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(round_to_bf16(p))
    for module in model.modules():
        if hasattr(module, "e_score_correction_bias"):
            module.correction_ = module.e_score_correction_bias.clone()
    if dtype == torch.float64:
        return to_double(model)
    return to_bf16(model) if dtype == torch.bfloat16 else model


def evaluate(model, batch):
    model.zero_grad(set_to_none=True)
    with watched_choices(model) as choices:
        logits, loss = forward_loss(model, batch)
    loss.backward()
    gradients = {k: p.grad.detach().double() for k, p in text_parameters(model)}
    norm = math.sqrt(sum(float(g.pow(2).sum()) for g in gradients.values()))
    return dict(logits=logits.detach().double(), loss=loss.item(),
                gradients=disk_tensors(model, gradients), norm=norm, choices=choices)


def check_documents(model, batch, logits):
    """The packed documents' logits are those of each alone: no mask of transformers has a say."""
    for row, documents in enumerate(batch["document_ids"]):
        for begin, end in document_ends(documents):
            with torch.no_grad():
                alone = model(torch.tensor([batch["input_ids"][row][begin:end]])).logits[0]
            assert relative(alone.double(), logits[row, begin:end]) < 1e-5


def relative(a, b):
    return float((a - b).norm() / b.norm())


def distances(result, reference, rows):
    """How far `result` is from `reference`: what the tests' limits are multiples of."""
    pick = lambda x: x.reshape(-1, x.shape[-1])[rows]
    return dict(logits=relative(pick(result["logits"]), pick(reference["logits"])),
                all_logits=relative(result["logits"], reference["logits"]),
                loss=abs(result["loss"] / reference["loss"] - 1),
                gradient_norm=abs(result["norm"] / reference["norm"] - 1),
                gradients={k: relative(g, reference["gradients"][k])
                           for k, g in result["gradients"].items()})


def check_clamps(model, batch):
    """Some of gpt-oss' gates and ups are clamped, and no rounding changes which: the gradient jumps."""
    gates, ups = [], []
    for module in model.modules():
        if type(module).__name__ == "GptOssExperts":
            def note(gate_up, apply=module._apply_gate):
                gates.append(gate_up[..., ::2].reshape(-1).detach())
                ups.append(gate_up[..., 1::2].reshape(-1).detach())
                return apply(gate_up)
            module._apply_gate = note
            limit = module.limit
    forward_loss(model, batch)
    if not gates:
        return
    gates, ups = torch.cat(gates), torch.cat(ups)
    assert (gates > limit).any() and (ups > limit).any() and (ups < -limit).any()
    assert min((gates - limit).abs().min(), (ups.abs() - limit).abs().min()) > 0.03 * limit


def curve_stream(vocabulary, seed):
    """A Markov chain over Zipf-distributed tokens: something to learn, every batch fresh."""
    rng = np.random.default_rng(seed)
    count = CURVE["steps"] * CURVE["global_batch"] * CURVE["sequence_length"]
    weights = 1.0 / np.arange(1, vocabulary + 1)
    weights /= weights.sum()
    successor = rng.permutation(vocabulary)
    drawn = rng.choice(vocabulary, count, p=weights)
    follow = rng.random(count) < 0.5
    stream = np.empty(count, np.uint16)
    previous = 0
    for i in range(count):
        previous = successor[previous] if follow[i] else drawn[i]
        stream[i] = previous
    return stream


def matches(name, pattern, tied):
    names = [name] + (["lm_head.weight"] if tied and name == "model.embed_tokens.weight" else [])
    return any(fnmatch.fnmatchcase(n, pattern) for n in names)


def parameter_groups(model, groups):
    """A group of each (rates, decaying or not); the first pattern that matches counts.

    What decays is as in transformers' Trainer: by name, not by the number of dimensions.
    """
    names = set(Trainer.get_decay_parameter_names(None, model))  # of the model alone
    decaying = {p for name, p in model.named_parameters() if name in names}
    chosen = {}
    for name, p in text_parameters(model):
        if not p.requires_grad:
            continue
        rate, decay = CURVE["learning_rate"], CURVE["weight_decay"]
        for pattern, own_rate, own_decay in groups:
            if matches(name, pattern, model.config.tie_word_embeddings):
                rate = rate if own_rate is None else own_rate
                decay = decay if own_decay is None else own_decay
                break
        decay = decay if p in decaying else 0.0
        chosen.setdefault((rate, decay), []).append(p)
    return [dict(params=params, lr=rate, peak=rate, weight_decay=decay)
            for (rate, decay), params in chosen.items()]


def curve(directory, stream, precision, max_norm, freeze=(), groups=()):
    """Losses and norms before clipping of AdamW steps; in bf16 on an FP32 master."""
    model = load(directory, torch.float64 if precision == "fp64" else torch.float32)
    model.requires_grad_(False)
    for name, p in text_parameters(model):
        p.requires_grad = not any(
            matches(name, pattern, model.config.tie_word_embeddings) for pattern in freeze)
    worker = to_bf16(model) if precision == "bf16" else model
    optimizer = torch.optim.AdamW(parameter_groups(model, groups),
                                  betas=(CURVE["beta1"], CURVE["beta2"]), eps=CURVE["epsilon"])
    sequences = stream.reshape(CURVE["steps"], CURVE["global_batch"], CURVE["sequence_length"])
    n = CURVE["sequence_length"]
    losses, norms, choices = [], [], []
    for step in range(CURVE["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * min(1.0, (step + 1) / CURVE["warmup_steps"])
        ids = sequences[step].astype(np.int64).tolist()
        rows = len(ids)
        batch = dict(input_ids=ids, labels=ids, position_ids=[list(range(n))] * rows,
                     document_ids=[[0] * n] * rows)
        worker.zero_grad(set_to_none=True)
        if worker is not model:
            with torch.no_grad():
                for w, p in zip(worker.parameters(), model.parameters()):
                    w.copy_(round_to_bf16(p))
        with watched_choices(worker) as seen:
            _, loss = forward_loss(worker, batch)
        choices += seen
        loss.backward()
        if worker is not model:
            for w, p in zip(worker.parameters(), model.parameters()):
                p.grad = None if w.grad is None else w.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm or float("inf"))
        losses.append(loss.item())
        norms.append(norm.item())
        optimizer.step()
    return dict(loss=losses, gradient_norm=norms), choices


def check_choices(**runs):
    """Refuses runs whose tokens go to different experts, or nearly; returns the margins."""
    first, *others = runs
    for other in others:
        different = differing(runs[first], runs[other])
        assert different == 0, f"{different} choices of {first} and {other} differ"
    margins = [margin for _, margin in runs[first]]
    assert all(margin > 1e-4 for margin in margins), min(margins)
    return margins


def write_reference(name, out):
    directory = os.path.join(out, name)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    make_model(name, directory)
    vocabulary = FAMILIES[name]["keys"]["vocab_size"]
    seed = seed_of(name)
    batch = make_batch(vocabulary, seed)
    positions = BATCH_SEQUENCES * BATCH_LENGTH
    rows = sorted(np.random.default_rng(seed).choice(positions, LOGIT_ROWS, False).tolist())

    exact = evaluate(load(directory, torch.float64), batch)
    single = evaluate(load(directory), batch)
    rounded = evaluate(load(directory, rounded=True), batch)
    half = evaluate(load(directory, torch.bfloat16, rounded=True), batch)
    margins = check_choices(exact=exact["choices"], single=single["choices"],
                            rounded=rounded["choices"], half=half["choices"])
    if margins:
        check_documents(load(directory), batch, single["logits"])
        check_clamps(load(directory), batch)
    for file, result in (("gradients", single), ("gradients_bf16_weights", rounded)):
        if file != "gradients" and FAMILIES[name]["stored"] == "BF16":
            continue
        tensors = {k: g.float().contiguous() for k, g in result["gradients"].items()}
        tensors["logits"] = result["logits"].reshape(positions, -1)[rows].float().contiguous()
        save_file(tensors, os.path.join(directory, file + ".safetensors"))

    stream = curve_stream(vocabulary, seed + 1)
    stream.astype("<u2").tofile(os.path.join(directory, "tokens.bin"))
    curves = {}
    for clipping, max_norm in (("clipped", 1.0), ("unclipped", 0.0)):
        runs = {p: curve(directory, stream, p, max_norm) for p in ("fp32", "fp64", "bf16")}
        curves[clipping] = {p: run for p, (run, _) in runs.items()}
        margins += check_choices(**{p: choices for p, (_, choices) in runs.items()})
    reference = dict(
        batch=batch,
        logit_rows=rows,  # sequence * BATCH_LENGTH + position, of the rows of `logits`
        fp32=dict(loss=single["loss"], gradient_norm=single["norm"],
                  distance_from_fp64=distances(single, exact, rows)),
        bf16=dict(loss=rounded["loss"], gradient_norm=rounded["norm"],
                  transformers_error=distances(half, rounded, rows)),
        curve_settings=CURVE, curves=curves)
    with open(os.path.join(directory, "reference.json"), "w") as f:
        json.dump(reference, f, separators=(",", ":"))
        f.write("\n")

    gap = lambda c, a, b: max(abs(x / y - 1) for x, y in zip(c[a]["loss"], c[b]["loss"]))
    worst = lambda d: max(d["gradients"].items(), key=lambda x: x[1])
    fp32, bf16 = reference["fp32"], reference["bf16"]
    print(f"{name}: loss {single['loss']:.4f} norm {single['norm']:.3f}\n"
          f"  fp32 from fp64: logits {fp32['distance_from_fp64']['logits']:.1e} "
          f"gradient {worst(fp32['distance_from_fp64'])}\n"
          f"  bf16: logits {bf16['transformers_error']['logits']:.1e} "
          f"gradient {worst(bf16['transformers_error'])}\n"
          + "".join(f"  {k}: loss {c['fp32']['loss'][0]:.3f} to {c['fp32']['loss'][-1]:.3f}, norms "
                    f"{min(c['fp32']['gradient_norm']):.2f} to {max(c['fp32']['gradient_norm']):.2f}"
                    f", fp32-fp64 {gap(c, 'fp32', 'fp64'):.1e}, bf16-fp32 {gap(c, 'bf16', 'fp32'):.1e}\n"
                    for k, c in curves.items())
          + (f"  margins of choices: {min(margins):.1e}\n" if margins else ""), flush=True)


def write_choices(out):
    choices = {}
    for name, (family, freeze, groups) in CHOICES.items():
        directory = os.path.join(out, family)
        vocabulary = FAMILIES[family]["keys"]["vocab_size"]
        stream = curve_stream(vocabulary, seed_of(family) + 1)
        keys = ("match", "learning_rate", "weight_decay")
        choices[name] = dict(
            family=family, freeze=freeze,
            groups=[{k: v for k, v in zip(keys, g) if v is not None} for g in groups],
            curves={clipping: {p: curve(directory, stream, p, max_norm, freeze, groups)[0]
                               for p in ("fp32", "fp64", "bf16")}
                    for clipping, max_norm in (("clipped", 1.0), ("unclipped", 0.0))})
        losses = choices[name]["curves"]["clipped"]["fp32"]["loss"]
        print(f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)
    os.makedirs(os.path.join(out, "choices"), exist_ok=True)
    with open(os.path.join(out, "choices", "choices.json"), "w") as f:
        json.dump(choices, f, separators=(",", ":"))
        f.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "models"))
    parser.add_argument("family", nargs="*", default=[*FAMILIES, "choices"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in arguments.family:
        write_choices(arguments.out) if name == "choices" else write_reference(name, arguments.out)


if __name__ == "__main__":
    main()
