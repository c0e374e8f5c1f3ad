#!/usr/bin/env python3
"""Makes tests/golden/models/FAMILY/generation.json: what transformers' generate answers greedily.

Usage: make_generation_references.py [--models tests/golden/models] [family...]

The models are those that make_model_references.py made. The weights are taken as FP32. The prompts
are of several lengths, and each is answered by itself, so that no padding has a say. Beside the
tokens stands `margin`, the least distance of the two largest logits over all of them: rounding
that moves a logit by less cannot change a token.

generation.json: {"prompts": [[id, ...], ...], "answers": [[id, ...], ...], "margin": x}
"""
import argparse
import json
import os

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from expert_choices import watched_choices

PROMPT_TOKENS = [1, 2, 7, 31, 32, 33, 70]
NEW_TOKENS = 24


def prompts(vocabulary):
    generator = torch.Generator().manual_seed(11)
    return [torch.randint(3, vocabulary, (n,), generator=generator).tolist() for n in PROMPT_TOKENS]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=os.path.join(os.path.dirname(__file__), "models"))
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    families = args.families or sorted(
        name for name in os.listdir(args.models)
        if os.path.exists(os.path.join(args.models, name, "config.json")))
    for family in families:
        directory = os.path.join(args.models, family)
        config = AutoConfig.from_pretrained(directory)
        auto = AutoModelForImageTextToText if config.sub_configs else AutoModelForCausalLM
        model = auto.from_pretrained(directory, dtype=torch.float32,
                                     experts_implementation="eager")
        model.eval()
        vocabulary = config.get_text_config().vocab_size
        result = {"prompts": prompts(vocabulary), "answers": [], "margin": float("inf")}
        for prompt in result["prompts"]:
            with torch.no_grad(), watched_choices(model) as choices:
                out = model.generate(torch.tensor([prompt]), max_new_tokens=NEW_TOKENS,
                                     do_sample=False, eos_token_id=None, pad_token_id=0,
                                     return_dict_in_generate=True, output_logits=True)
            assert all(margin > 1e-3 for _, margin in choices), "a choice of experts is in doubt"
            result["answers"].append(out.sequences[0, len(prompt):].tolist())
            for logits in out.logits:
                top = torch.topk(logits[0].double(), 2).values
                result["margin"] = min(result["margin"], float(top[0] - top[1]))
        with open(os.path.join(directory, "generation.json"), "w") as file:
            json.dump(result, file)
            file.write("\n")
        distinct = len({id for answer in result["answers"] for id in answer})
        print(f"{family}: margin {result['margin']:.3g}, {distinct} different tokens")


if __name__ == "__main__":
    main()
