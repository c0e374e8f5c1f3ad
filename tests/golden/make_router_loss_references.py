#!/usr/bin/env python3
"""Makes router_loss/router_loss_reference.json: one step of the reference models with experts, with
transformers' auxiliary loss of their routers.

    python3 make_router_loss_references.py [--models models] [--out router_loss]

Written with torch 2.15 and transformers 5.23. The batch is one micro-batch, for transformers pools
the loss over one.
"""

import argparse
import json
import os

import torch
from transformers import AutoModelForCausalLM

FAMILIES = ["mixtral", "qwen3_moe"]
COEFFICIENT = 0.7
SEQUENCES, LENGTH = 4, 64


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--models", default=os.path.join(here, "models"))
    parser.add_argument("--out", default=os.path.join(here, "router_loss"))
    args = parser.parse_args()
    # As in tests/engine/numerics/router_loss_test.cc; no token ends a document.
    tokens = [2 + (7 * i * i + 3 * i) % 117 for i in range(SEQUENCES * LENGTH)]
    ids = torch.tensor(tokens).reshape(SEQUENCES, LENGTH)
    result = dict(coefficient=COEFFICIENT, families={})
    for family in FAMILIES:
        model = AutoModelForCausalLM.from_pretrained(
            os.path.join(args.models, family), dtype=torch.float32, attn_implementation="eager",
            experts_implementation="eager")
        model.router_aux_loss_coef = COEFFICIENT
        out = model(input_ids=ids, labels=ids, output_router_logits=True)
        out.loss.backward()
        squares = sum((p.grad.double()**2).sum() for p in model.parameters())
        auxiliary = out.aux_loss.item()
        result["families"][family] = dict(loss=out.loss.item() - COEFFICIENT * auxiliary,
                                          gradient_norm=squares.sqrt().item(),
                                          auxiliary_loss=auxiliary)
    os.makedirs(args.out, exist_ok=True)
    with open(os.path.join(args.out, "router_loss_reference.json"), "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
