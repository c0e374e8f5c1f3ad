#!/usr/bin/env python3
"""Tokens per second of this engine over HF transformers with PyTorch eager, interleaved.

    bazel build //server:megatraind
    python3 tests/bench/transformers_bench.py [--megatraind PATH] [--precisions fp32,bf16]

A Llama of hidden 768, 12 layers, 12 heads, intermediate 2048, tied 32k vocabulary, a preset of
`megatraind init`, or with --experts a mixture of experts; gradients clipped to norm 1, nothing
recomputed on either side. PyTorch: SDPA attention, fused AdamW, its default allocator, BF16 by
autocast over FP32 parameters; the micro-batch is the fastest of those that are tried.

    python3 tests/bench/transformers_bench.py --device cuda --preset qwen2.5-1.5b --global-batch 64

is the same on a GPU, which must hold the whole model for PyTorch: there are no bounds for that.

A round is an engine run (a process of its own; its first step is dropped) and as many PyTorch
steps. Around each, a short matrix product measures the speed that the processor has at that moment:
only rounds in which both sides met the same speed within 15% count. Prints every round, and the
median of their ratios; on the cpu beside its bound, and exits 1 below one.
"""

import argparse
import statistics
import sys
import time

import torch
import transformers

import engine_run

# On the cpu, of the Llama, and of the model with experts.
BOUNDS = {"fp32": 1.0, "bf16": 1.35}
EXPERT_BOUNDS = {"fp32": 1.5, "bf16": 1.5}
PROBE_TOLERANCE = 0.15


class Probe:
    """Matrix products per second in the precision that is measured, best of three."""

    def __init__(self, precision, device):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.device, size = device, 1536 if device == "cpu" else 8192
        self.a, self.b = (torch.randn(size, size).to(device, dtype) for _ in range(2))
        self.flops = 2 * size**3

    def __call__(self):
        best = float("inf")
        for _ in range(3):
            start = seconds(self.device)
            self.a @ self.b
            best = min(best, seconds(self.device) - start)
        return self.flops / best


def seconds(device):
    """Now, everything done that was queued."""
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


class PyTorch:
    def __init__(self, config, precision, arguments):
        torch.manual_seed(0)
        settings = {k: v for k, v in config.items() if k not in ("architectures", "torch_dtype")}
        settings |= {"use_cache": False, "dtype": torch.float32}
        with torch.device(arguments.device):
            self.model = transformers.AutoModelForCausalLM.from_config(
                transformers.AutoConfig.for_model(**settings), attn_implementation="sdpa",
                experts_implementation=arguments.experts_implementation)
        self.model.train()
        self.precision, self.device = precision, arguments.device
        self.global_batch = arguments.global_batch
        decays = [p for p in self.model.parameters() if p.dim() > 1]
        plain = [p for p in self.model.parameters() if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decays, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95), fused=True)
        self.tokens = torch.randint(0, config["vocab_size"],
                                    (arguments.global_batch, arguments.sequence_length)
                                    ).to(self.device)

    def step(self, micro_batch):
        start = seconds(self.device)
        for tokens in self.tokens.split(micro_batch):
            with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
                loss = self.model(input_ids=tokens, labels=tokens).loss
            (loss * (len(tokens) / self.global_batch)).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return seconds(self.device) - start


def measure(precision, arguments, bench):
    if arguments.preset:
        config = bench.preset(arguments.preset)
    else:
        made = engine_run.experts if arguments.experts else engine_run.llama
        config = made(positions=arguments.sequence_length)
    peer, probe = PyTorch(config, precision, arguments), Probe(precision, arguments.device)
    tokens = arguments.sequence_length * arguments.global_batch
    bounds = EXPERT_BOUNDS if arguments.experts else BOUNDS
    bound = bounds[precision] if arguments.device == "cpu" and not arguments.preset else None

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
        if arguments.device != "cpu":
            torch.cuda.empty_cache()  # the engine takes what is free
        records, _ = bench.run(config, steps=1 + arguments.steps,
                               global_batch=arguments.global_batch,
                               sequence_length=arguments.sequence_length, precision=precision,
                               micro_batch=arguments.engine_micro_batch, recompute="none",
                               threads=arguments.threads, device=arguments.device)
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
          f"(all {len(ratios)}: {statistics.median(ratios):.3f})"
          + (f", bound {bound}" if bound else ""))
    return bound is None or ratio >= bound


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megatraind", help="default: bazel-bin/server/megatraind")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--preset", help="of `megatraind init`, instead of the Llama")
    parser.add_argument("--experts", action="store_true",
                        help="a Qwen3-MoE of 150M parameters, 4 of 32 experts, instead of the Llama")
    parser.add_argument("--experts-implementation", choices=["eager", "grouped_mm", "batched_mm"],
                        help="transformers' way to compute experts; default: its own choice")
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("--global-batch", type=int, default=8)
    parser.add_argument("--precisions", default="fp32,bf16", type=lambda text: text.split(","))
    parser.add_argument("--micro-batches", default="1,2,4,8", metavar="LIST",
                        type=lambda text: [int(n) for n in text.split(",")],
                        help="tried for PyTorch (1,2,4,8)")
    parser.add_argument("--engine-micro-batch", type=int, default=2)
    parser.add_argument("--tries", type=int, default=2, help="steps a micro-batch is tried for")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="timed steps a round and side")
    parser.add_argument("--threads", type=int, default=2, help="0 = all")
    parser.add_argument("--only-pytorch", action="store_true")
    arguments = parser.parse_args()
    arguments.micro_batches = [n for n in arguments.micro_batches
                               if arguments.global_batch % n == 0]
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    bench = engine_run.Bench(arguments.megatraind)
    passed = [measure(precision, arguments, bench) for precision in arguments.precisions]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
