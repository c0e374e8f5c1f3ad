#!/usr/bin/env python3
"""Makes tests/golden/models/preference: what PyTorch computes of direct preference optimization.

Usage: make_preference_references.py [--out tests/golden/models]

It needs the models of make_model_references.py. The formulas are those of DPOTrainer in TRL: a
log-probability is the sum over the answer's tokens, rewards are beta times its difference to the
reference's, and
  sigmoid  -(1 - s) logsigmoid(z) - s logsigmoid(-z)   (s: label smoothing; 0 in TRL's sigmoid)
  robust   (-(1 - s) logsigmoid(z) + s logsigmoid(-z)) / (1 - 2 s)
  hinge    relu(1 - z)
  ipo      (difference of means over tokens - 1 / (2 beta))^2
with z = beta (chosen log-ratio - rejected log-ratio). It writes
  pairs.jsonl           prompts and answers of the curves, as texts; tokens are their bytes, and 257
                        ends an answer
  FAMILY.safetensors    the FP32 gradient of every tensor on the family's batch, with the loss "sigmoid"
  preference.json       batches of packed pairs with log-probabilities of a reference that is not the
                        policy, their losses and gradient norms by kind of loss; loss curves
"""
import argparse
import copy
import json
import math
import os

import numpy as np
import torch
from safetensors.torch import save_file

from make_model_references import CURVE, forward_loss, parameter_groups, targets_of
from reference_models import load, round_to_bf16

FAMILIES = ("llama", "llama_tied")
LENGTH = 150
# Of each sequence: lengths of prompt, chosen and rejected answer of its pairs.
SHAPES = [[(20, 40, 61)], [(5, 1, 30), (9, 20, 4), (11, 17, 18)], [(0, 22, 23), (30, 2, 3)]]
# kind, label smoothing, beta
KINDS = [("sigmoid", 0.0, 0.1), ("sigmoid", 0.2, 0.3), ("robust", 0.1, 0.2), ("hinge", 0.0, 0.5),
         ("ipo", 0.0, 0.3)]
STEPS, PAIRS, EOS, CURVE_BETA = 12, 4, 257, 0.2


def make_batch(vocabulary, seed):
    """Packed pairs in the fields of engine/data/sequences/sequence.h."""
    rng = np.random.default_rng(seed)
    batch = dict(input_ids=[], labels=[], position_ids=[], document_ids=[])
    for row in SHAPES:
        ids, labels, positions, documents = [], [], [], []
        for prompt_length, *lengths in row:
            prompt = rng.integers(0, vocabulary, prompt_length).tolist()
            for length in lengths:
                answer = rng.integers(0, vocabulary, length).tolist()
                documents += [documents[-1] + 1 if documents else 0] * (prompt_length + length)
                ids += prompt + answer
                # Nothing predicts the first token of a document.
                labels += [-100] * max(1, prompt_length) + answer[1 if prompt_length == 0 else 0:]
                positions += range(prompt_length + length)
        padding = LENGTH - len(ids)
        batch["input_ids"].append(ids + [2] * padding)
        batch["labels"].append(labels + [-100] * padding)
        batch["position_ids"].append(positions + list(range(padding)))
        batch["document_ids"].append(documents + [-1] * padding)
    return batch


def packed_logps(model, batch):
    """[pairs, 2] sums of log-probabilities of answers, and the numbers of their tokens."""
    logits, _ = forward_loss(model, batch)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    targets = targets_of(batch)
    documents = torch.tensor(batch["document_ids"])
    token_logps = torch.gather(wide.log_softmax(-1), 2, targets.clamp(min=0)[..., None])[..., 0]
    logps, counts = [], []
    for row in range(len(SHAPES)):
        for document in range(2 * len(SHAPES[row])):
            answer = (documents[row] == document) & (targets[row] >= 0)
            logps.append(token_logps[row][answer].sum())
            counts.append(answer.sum())
    return torch.stack(logps).reshape(-1, 2), torch.stack(counts).reshape(-1, 2)


def preference_loss(logps, reference, counts, kind, smoothing, beta):
    """The mean over pairs, and the rewards."""
    logsigmoid = torch.nn.functional.logsigmoid
    scores = logps - reference
    z = beta * (scores[:, 0] - scores[:, 1])
    if kind == "sigmoid":
        losses = -(1 - smoothing) * logsigmoid(z) - smoothing * logsigmoid(-z)
    elif kind == "robust":
        losses = (-(1 - smoothing) * logsigmoid(z) + smoothing * logsigmoid(-z)) / (1 - 2 * smoothing)
    elif kind == "hinge":
        losses = torch.relu(1 - z)
    else:
        means = scores / counts.clamp(min=1)
        losses = (means[:, 0] - means[:, 1] - 1 / (2 * beta)) ** 2
    rewards = beta * scores.detach()
    return losses.mean(), dict(
        chosen=rewards[:, 0].mean().item(), rejected=rewards[:, 1].mean().item(),
        margins=(rewards[:, 0] - rewards[:, 1]).mean().item(),
        accuracies=(rewards[:, 0] > rewards[:, 1]).double().mean().item())


def evaluate_batch(directory, batch, reference, kind, dtype=torch.float32):
    model = load(directory, dtype)
    logps, counts = packed_logps(model, batch)
    loss, rewards = preference_loss(logps, reference.to(logps.dtype), counts, *kind)
    loss.backward()
    gradients = {k: p.grad.detach().double() for k, p in model.named_parameters()}
    norm = math.sqrt(sum(float(g.pow(2).sum()) for g in gradients.values()))
    return loss.item(), rewards, gradients, norm


def make_pairs(seed):
    """Texts with something to learn: chosen answers are of one kind of words, rejected of another."""
    rng = np.random.default_rng(seed)
    words = ["red", "tall", "and", "Ärger", "quick", "of stone", "below", "seven", "\n", "house"]
    good, bad = ["yes", "gladly", "it is", "right"], ["no", "never", "is it", "wrong"]
    text = lambda choices, least, most: " ".join(
        choices[i] for i in rng.integers(0, len(choices), rng.integers(least, most)))
    pairs = []
    for _ in range(STEPS * PAIRS):
        pairs.append(dict(prompt=text(words, 1, 5) + "?",
                          chosen=" " + text(good + words[:3], 1, 5),
                          rejected=" " + text(bad + words[3:5], 1, 6)))
    return pairs


def padded_logps(model, pairs):
    """As TRL lays out a batch: chosen answers, then rejected ones, padded at the right."""
    rows, masks = [], []
    for answer in ("chosen", "rejected"):
        for pair in pairs:
            prompt, completion = pair["prompt"].encode(), pair[answer].encode()
            rows.append(list(prompt + completion) + [EOS])
            masks.append([0] * len(prompt) + [1] * (len(completion) + 1))
    length = max(map(len, rows))
    pad = lambda row, value: row + [value] * (length - len(row))
    ids = torch.tensor([pad(row, 258) for row in rows])
    attention = torch.tensor([pad([1] * len(row), 0) for row in rows])
    mask = torch.tensor([pad(row, 0) for row in masks])
    logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    wide = logits if logits.dtype == torch.float64 else logits.float()
    logps = torch.gather(wide.log_softmax(-1), 2, ids[:, 1:, None])[..., 0]
    logps = torch.where(mask[:, 1:] == 0, torch.zeros_like(logps), logps)
    return (torch.stack(logps.sum(1).chunk(2), 1), torch.stack(mask[:, 1:].sum(1).chunk(2), 1))


def curve(directory, pairs, precision, max_norm):
    """AdamW steps as make_model_references.py takes them, on PAIRS pairs each."""
    model = load(directory, torch.float64 if precision == "fp64" else torch.float32)
    worker = copy.deepcopy(model).to(torch.bfloat16) if precision == "bf16" else model

    def refresh():
        with torch.no_grad():
            for w, p in zip(worker.parameters(), model.parameters()):
                w.copy_(round_to_bf16(p))

    if worker is not model:
        refresh()
    batches = [pairs[i:i + PAIRS] for i in range(0, len(pairs), PAIRS)]
    with torch.no_grad():
        references = [padded_logps(worker, batch)[0] for batch in batches]
    optimizer = torch.optim.AdamW(parameter_groups(model, ()),
                                  betas=(CURVE["beta1"], CURVE["beta2"]), eps=CURVE["epsilon"])
    losses, norms, rewards = [], [], []
    for step, (batch, reference) in enumerate(zip(batches, references)):
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * min(1.0, (step + 1) / CURVE["warmup_steps"])
        worker.zero_grad(set_to_none=True)
        if worker is not model:
            refresh()
        logps, counts = padded_logps(worker, batch)
        loss, reward = preference_loss(logps, reference, counts, "sigmoid", 0.0, CURVE_BETA)
        loss.backward()
        if worker is not model:
            for w, p in zip(worker.parameters(), model.parameters()):
                p.grad = w.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm or float("inf"))
        losses.append(loss.item())
        norms.append(norm.item())
        rewards.append(reward)
        optimizer.step()
    return dict(loss=losses, gradient_norm=norms, rewards=rewards)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "models"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.manual_seed(0)
    directory = os.path.join(out, "preference")
    os.makedirs(directory, exist_ok=True)
    pairs = make_pairs(11)
    with open(os.path.join(directory, "pairs.jsonl"), "w") as f:
        for pair in pairs:
            f.write(json.dumps(pair, ensure_ascii=False) + "\n")
    references = dict(steps=STEPS, pairs=PAIRS, beta=CURVE_BETA, families={})
    for family in FAMILIES:
        model = os.path.join(out, family)
        batch = make_batch(259, sum(map(ord, family)))
        rng = np.random.default_rng(5)
        with torch.no_grad():
            logps, _ = packed_logps(load(model, torch.float64), batch)
        reference = logps + torch.tensor(rng.normal(0, 4, logps.shape))
        losses = []
        for kind in KINDS:
            loss, rewards, gradients, norm = evaluate_batch(model, batch, reference, kind)
            exact = evaluate_batch(model, batch, reference, kind, torch.float64)
            losses.append(dict(kind=kind[0], label_smoothing=kind[1], beta=kind[2], loss=loss,
                               gradient_norm=norm, rewards=rewards))
            print(f"{family} {kind}: loss {loss:.6f}, from FP64 {abs(loss / exact[0] - 1):.1e}, "
                  f"norm {norm:.4f}, from FP64 {abs(norm / exact[3] - 1):.1e}", flush=True)
            if kind == KINDS[0]:
                save_file({k: g.float().contiguous() for k, g in gradients.items()},
                          os.path.join(directory, family + ".safetensors"))
        curves = {clipping: {p: curve(model, pairs, p, max_norm) for p in ("fp32", "fp64", "bf16")}
                  for clipping, max_norm in (("clipped", 1.0), ("unclipped", 0.0))}
        for clipping, by_precision in curves.items():
            gap = lambda a, b: max(abs(x / y - 1) for x, y in
                                   zip(by_precision[a]["loss"], by_precision[b]["loss"]))
            loss = by_precision["fp32"]["loss"]
            print(f"{family} {clipping}: loss {loss[0]:.4f} to {loss[-1]:.4f}, "
                  f"fp32-fp64 {gap('fp32', 'fp64'):.1e}, bf16-fp32 {gap('bf16', 'fp32'):.1e}",
                  flush=True)
        references["families"][family] = dict(
            batch=dict(batch, reference_logps=reference.tolist()), losses=losses, curves=curves)
    with open(os.path.join(directory, "preference.json"), "w") as f:
        json.dump(references, f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
