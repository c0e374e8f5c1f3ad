#!/usr/bin/env python3
"""Seconds of the gated delta rule in transformers' torch path over this engine's, interleaved.

    bazel build //tests/bench:delta_bench
    python3 tests/bench/delta_vs_torch.py [--bench PATH] [--rounds 5] [--threads 2]

Both sides take 2,048 tokens of one document, 16 key heads and 32 value heads of 128 (Qwen3-Next).
PyTorch runs torch_chunk_gated_delta_rule with the gates before it, and autograd for the gradient.
"""

import argparse
import pathlib
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

TOKENS, KEY_HEADS, VALUE_HEADS, DIM = 2048, 16, 32, 128


class Torch:
    def __init__(self, dtype):
        def random(*shape):
            return torch.randn(shape).to(dtype).requires_grad_()

        self.q, self.k = (random(1, TOKENS, KEY_HEADS, DIM) for _ in range(2))
        self.v = random(1, TOKENS, VALUE_HEADS, DIM)
        self.a, self.b = (random(1, TOKENS, VALUE_HEADS) for _ in range(2))
        self.a_log, self.dt_bias = random(VALUE_HEADS), random(VALUE_HEADS)
        self.dout = torch.randn(1, TOKENS, VALUE_HEADS, DIM).to(dtype)

    def forward(self):
        beta = self.b.sigmoid()
        g = -self.a_log.float().exp() * F.softplus(self.a.float() + self.dt_bias)
        return torch_chunk_gated_delta_rule(
            self.q, self.k, self.v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0]

    def seconds(self, direction):
        out = self.forward() if direction == "backward" else None
        start = time.perf_counter()
        if direction == "backward":
            out.backward(self.dout)
        else:
            with torch.no_grad():
                self.forward()
        return time.perf_counter() - start


class Engine:
    def __init__(self, bench, threads):
        self.process = subprocess.Popen([bench, "--serve", str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def seconds(self, precision, direction):
        self.process.stdin.write(f"{precision} {direction}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--bench", default=str(root / "bazel-bin/tests/bench/delta_bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    engine = Engine(arguments.bench, arguments.threads)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        peer = Torch(dtype)
        for direction in ("forward", "backward"):
            rounds = []
            for round in range(-1, arguments.rounds):  # the first warms up
                both = engine.seconds(precision, direction), peer.seconds(direction)
                if round >= 0:
                    rounds.append(both)
            ours, theirs = (statistics.median(times) for times in zip(*rounds))
            ratio = statistics.median(theirs / ours for ours, theirs in rounds)
            print(f"{precision} {direction:<8}  engine {ours * 1e3:8.1f} ms  "
                  f"PyTorch {theirs * 1e3:8.1f} ms  ratio {ratio:.2f}")
    engine.process.stdin.close()
    engine.process.wait()


if __name__ == "__main__":
    main()
