#!/usr/bin/env python3
"""Generation with streamed weights: tokens per second of a batch over those of one prompt.

    bazel build //server:megatraind
    python3 tests/bench/generation_bench.py [--megatraind PATH] [--preset NAME] [--rounds N]

Tokens of answers per second, through `megatraind generate` on the cpu device: the time of long
answers less that of short ones, so that loading the model and the prompts' pass do not count. The
stream of weights is a copy in memory there, so it is also throttled to the rates of links that it
dominates on. Rounds of the two batches are interleaved, and medians count. Prints each ratio, the
throttled ones with their bound; exits 1 if one is missed. Standard library only.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import engine_run

BATCH = 32
BOUND = 20


def seconds(arguments, model, prompts, tokens, link):
    command = [arguments.megatraind, "generate", str(model), "--prompts", str(prompts), "-o", "json",
               "--tokens", str(tokens), "--temperature", "0", "--device", "cpu",
               "--link-gigabytes-per-second", str(link), "--stop-id", "0"]
    start = time.monotonic()
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    taken = time.monotonic() - start
    for line in out.splitlines():
        answer = json.loads(line)
        if answer["tokens"] != tokens:
            sys.exit(f"an answer ended after {answer['tokens']} tokens; use another preset or seed")
    return taken


def rate(arguments, model, prompts, count, link):
    """Tokens per second of all answers together."""
    short, long = arguments.tokens
    taken = (seconds(arguments, model, prompts, long, link)
             - seconds(arguments, model, prompts, short, link))
    return count * (long - short) / taken


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatraind", default=str(engine_run.ROOT / "bazel-bin/server/megatraind"))
    parser.add_argument("--preset", default="llama-124m")
    parser.add_argument("--tokens", type=int, nargs=2, default=(4, 16), metavar=("SHORT", "LONG"))
    parser.add_argument("--links", type=float, nargs="*", default=[0, 2, 0.5],
                        help="GB/s; 0: not throttled, without a bound")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="megatrain-bench-") as directory:
        model = pathlib.Path(directory) / "model"
        subprocess.run([arguments.megatraind, "init", "--preset", arguments.preset, "--out",
                        str(model)], check=True, stdout=subprocess.DEVNULL)
        files = {}
        for count in (1, BATCH):
            files[count] = pathlib.Path(directory) / f"{count}.txt"
            files[count].write_text("".join(f"Prompt number {i} of some\n" for i in range(count)))
        for link in arguments.links:
            rates = {1: [], BATCH: []}
            for _ in range(arguments.rounds):
                for count, found in rates.items():
                    found.append(rate(arguments, model, files[count], count, link))
            one, many = (statistics.median(found) for found in rates.values())
            ratio = many / one
            bounded = link > 0
            missed += bounded and ratio < BOUND
            name = f"link {link:g} GB/s" if bounded else "link not throttled"
            held = f">= {BOUND}" if bounded else "(no bound)"
            print(f"{'MISSED' if bounded and ratio < BOUND else 'ok    '} {name}: batch {BATCH} "
                  f"over batch 1, tokens/s: {ratio:.1f} {held}; {many:.2f} and {one:.2f} tokens/s",
                  flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
