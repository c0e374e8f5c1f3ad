#!/usr/bin/env python3
"""Tokens per second of this engine over HF transformers with PyTorch eager, interleaved.

    bazel build //server:megatraind
    python3 tests/bench/transformers_bench.py [--megatraind PATH] [--precisions fp32,bf16]

A Llama of hidden 768, 12 layers, 12 heads, intermediate 2048, tied 32k vocabulary; sequence 1024,
global batch 8, gradients clipped to norm 1, nothing recomputed on either side. PyTorch: SDPA
attention, fused AdamW, its default allocator, BF16 by autocast; the micro-batch is the fastest of
those that are tried.

A round is an engine run (a process of its own; its first step is dropped) and as many PyTorch
steps. Around each, a short matrix product measures the speed that the processor has at that moment:
only rounds in which both sides met the same speed within 15% count. Prints every round, and the
median of their ratios beside its bound; exits 1 below a bound.
"""

import argparse
import statistics
import sys
import time

import torch
import transformers

import engine_run

SEQUENCE, GLOBAL_BATCH = 1024, 8
BOUNDS = {"fp32": 1.0, "bf16": 1.35}
PROBE_TOLERANCE = 0.15


class Probe:
    """Matrix products per second in the precision that is measured, best of three."""

    def __init__(self, precision):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        size = 1536
        self.a, self.b = (torch.randn(size, size).to(dtype) for _ in range(2))
        self.flops = 2 * size**3

    def __call__(self):
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            self.a @ self.b
            best = min(best, time.perf_counter() - start)
        return self.flops / best


class PyTorch:
    def __init__(self, config, precision):
        torch.manual_seed(0)
        settings = {k: v for k, v in config.items() if k not in ("architectures", "torch_dtype")}
        self.model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**settings, attn_implementation="sdpa", use_cache=False))
        self.model.train()
        self.precision = precision
        decays = [p for p in self.model.parameters() if p.dim() > 1]
        plain = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decays, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.tokens = torch.randint(0, config["vocab_size"], (GLOBAL_BATCH, SEQUENCE))

    def step(self, micro_batch):
        start = time.perf_counter()
        for tokens in self.tokens.split(micro_batch):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
                loss = self.model(input_ids=tokens, labels=tokens).loss
            (loss * (len(tokens) / GLOBAL_BATCH)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start


def measure(precision, arguments, bench):
    config = engine_run.llama(positions=SEQUENCE)
    peer, probe = PyTorch(config, precision), Probe(precision)
    tokens = SEQUENCE * GLOBAL_BATCH

    tried = {}
    for micro_batch in arguments.micro_batches:
        peer.step(micro_batch)
        tried[micro_batch] = min(peer.step(micro_batch) for _ in range(arguments.tries))
        print(f"{precision}  PyTorch, micro-batch {micro_batch}: "
              f"{tokens / tried[micro_batch]:8.1f} tokens/s", flush=True)
    micro_batch = min(tried, key=tried.get)
    if arguments.only_pytorch:
        return True

    ratios, matched = [], []
    for round in range(arguments.rounds):
        before = probe()
        records, _ = bench.run(config, steps=1 + arguments.steps, global_batch=GLOBAL_BATCH,
                               sequence_length=SEQUENCE, precision=precision,
                               micro_batch=arguments.engine_micro_batch, recompute="none",
                               threads=arguments.threads)
        between = probe()
        theirs = statistics.median(peer.step(micro_batch) for _ in range(arguments.steps))
        after = probe()
        ours = engine_run.step_seconds(records)
        ratio = theirs / ours
        engine_speed, peer_speed = (before + between) / 2, (between + after) / 2
        match = abs(engine_speed / peer_speed - 1) <= PROBE_TOLERANCE
        ratios.append(ratio)
        matched += [ratio] if match else []
        print(f"{precision}  round {round}: engine {tokens / ours:8.1f}, PyTorch "
              f"{tokens / theirs:8.1f} tokens/s, ratio {ratio:.3f}; probes {before / 1e9:.0f}, "
              f"{between / 1e9:.0f}, {after / 1e9:.0f} GFLOP/s{'' if match else ', not matched'}",
              flush=True)
    if not matched:
        print(f"{precision}  no round is matched: the machine is too busy")
        return False
    ratio = statistics.median(matched)
    print(f"{precision}  engine / PyTorch: {ratio:.3f} over {len(matched)} matched rounds "
          f"(all {len(ratios)}: {statistics.median(ratios):.3f}), bound {BOUNDS[precision]}")
    return ratio >= BOUNDS[precision]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megatraind", help="default: bazel-bin/server/megatraind")
    parser.add_argument("--precisions", default="fp32,bf16", type=lambda text: text.split(","))
    parser.add_argument("--micro-batches", default="1,2,4,8", metavar="LIST",
                        type=lambda text: [int(n) for n in text.split(",")],
                        help="tried for PyTorch (1,2,4,8)")
    parser.add_argument("--engine-micro-batch", type=int, default=2)
    parser.add_argument("--tries", type=int, default=2, help="steps a micro-batch is tried for")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="timed steps a round and side")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-pytorch", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    bench = engine_run.Bench(arguments.megatraind)
    passed = [measure(precision, arguments, bench) for precision in arguments.precisions]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
