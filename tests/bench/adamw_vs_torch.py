#!/usr/bin/env python3
"""Parameters per second of this engine's AdamW over PyTorch's CPU AdamW, interleaved.

    bazel build //tests/bench:adamw_bench
    python3 tests/bench/adamw_vs_torch.py [--bench PATH] [--rounds 15] [--threads 2]

Both sides update the tensors of a Llama of 110 million parameters (hidden 768, 12 layers,
intermediate 2048, tied 32k vocabulary). PyTorch's variants are for-loop, foreach and fused.
FP32: FP32 weights, gradients and moments. BF16: the same work that keeps a BF16 model in step with
an FP32 master; PyTorch does the FP32 update and copies the weights to BF16 tensors, the engine
updates split masters.
Prints the table and exits 1 if a ratio of medians is below its bound.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

import torch

HIDDEN, LAYERS, INTERMEDIATE, VOCABULARY = 768, 12, 2048, 32000
BOUNDS = {"fp32": 0.98, "bf16": 1.15}


def shapes():
    layer = [(HIDDEN,), (HIDDEN,), *[(HIDDEN, HIDDEN)] * 4,
             (INTERMEDIATE, HIDDEN), (INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)]
    return [(VOCABULARY, HIDDEN), *layer * LAYERS, (HIDDEN,)]


class Torch:
    """One variant of torch.optim.AdamW, with its own weights and moments."""

    def __init__(self, variant, gradients):
        self.parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in shapes()]
        for parameter, gradient in zip(self.parameters, gradients):
            parameter.grad = gradient
        decays = [p for p in self.parameters if p.dim() > 1]
        plain = [p for p in self.parameters if p.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decays, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=1e-4, betas=(0.9, 0.95), foreach=variant == "foreach", fused=variant == "fused")
        self.halves = [p.detach().to(torch.bfloat16) for p in self.parameters]

    def update(self, precision):
        start = time.perf_counter()
        self.optimizer.step()
        if precision == "bf16":
            with torch.no_grad():
                torch._foreach_copy_(self.halves, self.parameters)
        return time.perf_counter() - start


class Engine:
    def __init__(self, bench, threads):
        self.process = subprocess.Popen([bench, "--serve", "--threads", str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def update(self, precision):
        self.process.stdin.write(precision + "\n")
        self.process.stdin.flush()
        seconds, parameters = self.process.stdout.readline().split()
        self.parameters = int(parameters)
        return float(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--bench", default=str(root / "bazel-bin/tests/bench/adamw_bench"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    gradients = [torch.randn(shape) * 1e-3 for shape in shapes()]
    count = sum(gradient.numel() for gradient in gradients)
    engine = Engine(arguments.bench, arguments.threads)
    contenders = {name: Torch(name, gradients) for name in ("for-loop", "foreach", "fused")}
    failed = False
    for precision, bound in BOUNDS.items():
        seconds = {name: [] for name in ("engine", *contenders)}
        for round in range(-1, arguments.rounds):  # the first warms up
            order = ["engine", *contenders]
            shift = round % len(order)
            for name in order[shift:] + order[:shift]:
                side = engine if name == "engine" else contenders[name]
                taken = side.update(precision)
                if round >= 0:
                    seconds[name].append(taken)
        assert engine.parameters == count, (engine.parameters, count)
        rates = {name: count / statistics.median(taken) for name, taken in seconds.items()}
        for name, rate in rates.items():
            print(f"{precision}  {name:<10} {rate / 1e6:9.1f} Mparams/s "
                  f"(fastest round {count / min(seconds[name]) / 1e6:9.1f})")
        best = max(contenders, key=lambda name: rates[name])
        ratio = rates["engine"] / rates[best]
        failed = failed or ratio < bound
        print(f"{precision}  engine / best of PyTorch ({best}): {ratio:.3f}, bound {bound}")
    engine.process.stdin.close()
    engine.process.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
