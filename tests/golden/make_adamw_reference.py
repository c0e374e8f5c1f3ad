#!/usr/bin/env python3
"""Writes tests/golden/adamw/adamw_reference.h: five steps of torch.optim.AdamW.

Two tensors, a matrix with weight decay and a norm without, FP32, a learning rate that changes
each step, gradients clipped by torch.nn.utils.clip_grad_norm_ to a norm that binds in some steps
and not in others. Everything as torch has it, in FP32 on the CPU; bits are written in hexadecimal.

    python3 tests/golden/make_adamw_reference.py
"""

import pathlib

import numpy
import torch

STEPS = 5
DECAYING, PLAIN = 40, 24
LEARNING_RATES = [1e-3, 3e-3, 2e-3, 1e-3, 5e-4]
BETA1, BETA2, EPSILON, WEIGHT_DECAY, MAX_NORM = 0.9, 0.95, 1e-8, 0.1, 6.0


def bits(tensor):
    values = tensor.detach().numpy().astype(numpy.float32).view(numpy.uint32)
    rows = [values[i : i + 8] for i in range(0, len(values), 8)]
    return ",\n    ".join(", ".join(f"0x{v:08x}" for v in row) for row in rows)


def array(name, tensor):
    return f"inline constexpr uint32_t {name}[] = {{\n    {bits(tensor)}}};\n"


def main():
    torch.manual_seed(20)
    matrix = torch.nn.Parameter(torch.randn(DECAYING) * 0.02)
    norm = torch.nn.Parameter(1 + torch.randn(PLAIN) * 0.01)
    initial = torch.cat([matrix, norm]).detach().clone()
    # Magnitudes from 1e-6 to 1: epsilon matters for the small ones.
    gradients = torch.randn(STEPS, DECAYING + PLAIN) * torch.logspace(-6, 0, DECAYING + PLAIN)
    gradients[1] *= 10
    gradients[3] = 0
    optimizer = torch.optim.AdamW(
        [{"params": [matrix], "weight_decay": WEIGHT_DECAY}, {"params": [norm], "weight_decay": 0.0}],
        betas=(BETA1, BETA2), eps=EPSILON, foreach=False, fused=False)
    norms, weights = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATES[step]
        matrix.grad = gradients[step][:DECAYING].clone()
        norm.grad = gradients[step][DECAYING:].clone()
        norms.append(torch.nn.utils.clip_grad_norm_([matrix, norm], MAX_NORM))
        optimizer.step()
        weights.append(torch.cat([matrix, norm]).detach().clone())

    state = [optimizer.state[p] for p in (matrix, norm)]
    text = [
        "// Made by tests/golden/make_adamw_reference.py: do not edit.\n"
        "#ifndef MEGATRAIN_TESTS_GOLDEN_ADAMW_ADAMW_REFERENCE_H_\n"
        "#define MEGATRAIN_TESTS_GOLDEN_ADAMW_ADAMW_REFERENCE_H_\n\n"
        "#include <cstdint>\n\n"
        "namespace megatrain::adamw_reference {\n\n"
        f"inline constexpr int kSteps = {STEPS}, kDecaying = {DECAYING}, kPlain = {PLAIN};\n"
        f"inline constexpr double kBeta1 = {BETA1}, kBeta2 = {BETA2}, kEpsilon = {EPSILON},\n"
        f"                        kWeightDecay = {WEIGHT_DECAY}, kMaxNorm = {MAX_NORM};\n"
        f"inline constexpr double kLearningRates[] = {{{', '.join(map(str, LEARNING_RATES))}}};\n",
        "// FP32 bits: the decaying tensor, then the other; [steps, elements] where there are steps.\n"
        + array("kInitial", initial),
        array("kGradients", gradients.reshape(-1)),
        array("kNorms", torch.stack(norms)),
        array("kWeights", torch.cat(weights)),
        array("kExpAvg", torch.cat([s["exp_avg"] for s in state])),
        array("kExpAvgSq", torch.cat([s["exp_avg_sq"] for s in state])),
        "}  // namespace megatrain::adamw_reference\n\n"
        "#endif  // MEGATRAIN_TESTS_GOLDEN_ADAMW_ADAMW_REFERENCE_H_\n",
    ]
    out = pathlib.Path(__file__).parent / "adamw" / "adamw_reference.h"
    out.parent.mkdir(exist_ok=True)
    out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
