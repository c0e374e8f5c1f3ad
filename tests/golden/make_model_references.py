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
import fnmatch
import json
import math
import os
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Trainer

from expert_choices import differing, watched_choices
from model_families import CHOICES, FAMILIES, seed_of
from reference_models import (disk_tensors, is_delta_net, load, make_model, round_to_bf16,
                              text_parameters, to_bf16)

BATCH_SEQUENCES, BATCH_LENGTH = 3, 150
LOGIT_ROWS = 40
CURVE = dict(sequence_length=37, global_batch=4, steps=20, warmup_steps=10, learning_rate=3e-4,
             beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1)


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
