#!/usr/bin/env python3
"""Whole steps: what the engine promises of time and bytes, measured through `megatraind run`.

    bazel build //server:megatraind
    python3 tests/bench/step_bench.py [--megatraind PATH] [--rounds N] [SCENARIO...]

Scenarios (all by default):
  products    step time over the time inside matrix products, the 110M Llama; FP32 and BF16
  recompute   tokens/s with everything recomputed over nothing recomputed
  depth       device bytes of 48 layers against 4, stash on the host
  link        link throttled so that its busier direction takes 0.8 of compute, one thread for
              compute and one for updates: step time over its bound, clipping off and on
  affine      step time against depth and against batch tokens: residuals of a straight line
  memory      host bytes a parameter beside slabs, stash and arena, and peak RSS against the plan;
              --parameters large is the 1.3B model, experts one of 1.5B in 64
  ranks       tokens/s of two devices with a thread each over one with two, and of one device that
              sums gradients in four parts over one part

Ratios are of one run on one machine; rounds of the compared settings are interleaved. Within a run
medians are taken; where runs are compared, the fastest step of each. Prints a line a figure with its bound; exits 1 if one is missed. Standard library only.
"""

import argparse
import statistics
import sys

import engine_run

SMALL = dict(hidden=256, heads=4, intermediate=768, vocabulary=4096)


class Report:
    def __init__(self):
        self.missed = 0

    def at_most(self, what, value, bound):
        self.line(what, value, "<=", bound, value <= bound)

    def at_least(self, what, value, bound):
        self.line(what, value, ">=", bound, value >= bound)

    def equal(self, what, value, other):
        self.line(what, value, "==", other, value == other)

    def line(self, what, value, relation, bound, holds):
        self.missed += not holds
        shown = f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
        print(f"{'ok    ' if holds else 'MISSED'} {what}: {shown} {relation} {bound}", flush=True)


def rows(records):
    """The steps that count: the first warms up."""
    return records[1:]


def fastest(seconds):
    """What else runs on the machine only adds time, and adds more to a long step than to a short
    one: medians of a busy machine compare the neighbours."""
    return min(seconds)


def products(bench, arguments, report):
    config = engine_run.llama(layers=arguments.layers)
    for precision, bound in (("fp32", 1.22), ("bf16", 1.35)):
        ratios = []
        for _ in range(arguments.rounds):
            records, _ = bench.run(config, steps=4, precision=precision, recompute="none",
                                   threads=arguments.threads)
            # Sums: a step's share of products may be booked with its neighbour.
            ratios.append(sum(r["step_seconds"] for r in rows(records))
                          / sum(r["matmul_seconds"] for r in rows(records)))
        report.at_most(f"step / products, {precision}", statistics.median(ratios), bound)


def recompute(bench, arguments, report):
    config = engine_run.llama(layers=arguments.layers)
    for precision in ("fp32", "bf16"):
        seconds = {"none": [], "all": []}
        for _ in range(arguments.rounds):
            for mode in seconds:
                records, _ = bench.run(config, steps=4, global_batch=4, precision=precision,
                                       recompute=mode, threads=arguments.threads)
                seconds[mode] += [r["step_seconds"] for r in rows(records)]
        ratio = fastest(seconds["none"]) / fastest(seconds["all"])
        report.at_least(f"tokens/s, all recomputed over none, {precision}", ratio, 0.78)


def depth(bench, arguments, report):
    device = {}
    for layers in (4, 48):
        records, _ = bench.run(engine_run.llama(layers=layers, **SMALL), steps=1, global_batch=4,
                               sequence_length=128, stash="host", recompute="all",
                               threads=arguments.threads)
        device[layers] = records[-1]["device_bytes"]
    report.equal("device bytes, 48 layers and 4, host stash", device[48], device[4])


def bound_seconds(record, clipping):
    """ARCHITECTURE.md, "What bounds a step". Forward is a third of compute: its products are a third."""
    busy = record["lane_busy_seconds"]
    busiest = max(busy[lane] for lane in ("h2d", "compute", "d2h", "update"))
    if not clipping:
        return busiest
    forward = busy["compute"] / 3
    return max(busiest, busy["compute"] - forward + max(forward, busy["update"]))


def link(bench, arguments, report):
    # A host stash about as large as the weights, as with 7B and 64k tokens a step: hidden * 2 bytes
    # * 4,096 tokens a layer, against 3.4e6 * 2 bytes of weights. The turn of a step (last gradient
    # out, update, first weights in) costs about two tiles' transfers whatever the depth.
    config = engine_run.llama(hidden=512, layers=arguments.link_layers, heads=8, intermediate=1536,
                              vocabulary=8192)
    shape = dict(global_batch=8, micro_batch=1, sequence_length=512, recompute="none",
                 stash="host", threads=2, update_threads=1)
    for clipping in (0.0, 1.0):
        free, _ = bench.run(config, steps=3, clipping=clipping, **shape)
        compute = statistics.median(r["lane_busy_seconds"]["compute"] for r in rows(free))
        busier = max(free[-1]["h2d_bytes"], free[-1]["d2h_bytes"])
        rate = busier / (0.8 * compute) / 1e9
        ratios, shares = [], []
        for _ in range(arguments.rounds):
            records, _ = bench.run(config, steps=4, clipping=clipping,
                                   link_gigabytes_per_second=round(rate, 4), **shape)
            ratios += [r["step_seconds"] / bound_seconds(r, clipping) for r in rows(records)]
            shares += [max(r["lane_busy_seconds"]["h2d"], r["lane_busy_seconds"]["d2h"])
                       / r["lane_busy_seconds"]["compute"] for r in rows(records)]
        report.at_most(f"step / bound, link of {rate:.2f} GB/s "
                       f"({statistics.median(shares):.2f} of compute), clipping "
                       f"{'on' if clipping else 'off'}", statistics.median(ratios), 1.10)


def residual(xs, ys):
    """Largest distance from the least-squares line, relative to the value."""
    mean_x, mean_y = statistics.mean(xs), statistics.mean(ys)
    slope = (sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys))
             / sum((x - mean_x) ** 2 for x in xs))
    return max(abs(y - mean_y - slope * (x - mean_x)) / y for x, y in zip(xs, ys))


def affine(bench, arguments, report):
    # A run's mean over about the same time whatever its steps' length: of single steps, the fastest
    # short one would lie within a moment in which the machine is fast, the fastest long one not.
    def measure(settings):
        seconds = {key: [] for key in settings}
        for _ in range(2 * arguments.rounds):
            for key, (config, batch) in settings.items():
                work = (config["num_hidden_layers"] + 2) * batch
                records, _ = bench.run(config, steps=1 + 800 // work, global_batch=batch,
                                       micro_batch=4, sequence_length=256, recompute="none",
                                       threads=arguments.threads)
                seconds[key].append(statistics.mean(r["step_seconds"] for r in rows(records)))
        shortest = {key: fastest(values) for key, values in seconds.items()}
        print("       seconds: " + ", ".join(f"{k}: {v:.3f}" for k, v in shortest.items()),
              flush=True)
        return shortest

    shape = dict(hidden=512, heads=8, intermediate=1536, vocabulary=8192)
    by_depth = measure({n: (engine_run.llama(layers=n, **shape), 4) for n in (4, 8, 12, 16)})
    report.at_most("residual of step time against depth, 4 to 16 layers",
                   residual(list(by_depth), list(by_depth.values())), 0.05)
    by_batch = measure({n: (engine_run.llama(layers=4, **shape), n) for n in (4, 8, 12, 16)})
    report.at_most("residual of step time against batch tokens, 1,024 to 4,096",
                   residual(list(by_batch), list(by_batch.values())), 0.05)


def memory(bench, arguments, report):
    if arguments.parameters == "large":  # 1.28e9 parameters
        config = engine_run.llama(hidden=2048, layers=24, heads=16, intermediate=5504)
    elif arguments.parameters == "experts":  # 1.52e9 parameters, 64 experts
        config = engine_run.experts(hidden=1024, layers=12, heads=16, intermediate=608, experts=64)
    else:
        config = engine_run.llama()
    count = engine_run.parameters(config)
    settings = ((0.0, "fp32", 12.1), (1.0, "fp32", 16.1), (1.0, "bf16", 14.1))
    if arguments.parameters == "experts":  # with clipping they need more than 24 GiB
        settings = settings[:1]
    for clipping, gradient_dtype, bound in settings:
        shape = dict(steps=2, clipping=clipping, gradient_dtype=gradient_dtype, global_batch=2,
                     micro_batch=1, sequence_length=512, recompute="all",
                     threads=arguments.threads)
        plan = bench.plan(config, **shape)
        host = plan["host"]
        state = host["tiles"] + (host["gradient slabs"] if clipping else 0)
        what = f"clipping {'on' if clipping else 'off'}, {gradient_dtype} gradients"
        report.at_most(f"host bytes of state a parameter, {what}", state / count, bound)
        if not plan["fits"]:
            print(f"       {what}: does not fit here, so it is not run", flush=True)
            continue
        _, rss = bench.run(config, **shape)
        report.at_most(f"|peak RSS / plan - 1|, {what}", abs(rss / plan["host_bytes"] - 1), 0.05)


def ranks(bench, arguments, report):
    config = engine_run.llama(layers=arguments.layers)
    cases = {"two devices": (dict(devices=2), 0.85),
             "gradient_shards: 4": (dict(gradient_shards=4), 0.97)}
    for precision in ("fp32", "bf16"):
        ratios = {what: [] for what in cases}
        for _ in range(arguments.rounds):
            seconds = {}
            for what, case in {"one": ({}, 0), **cases}.items():
                records, _ = bench.run(config, steps=3, precision=precision, recompute="none",
                                       threads=arguments.threads, **case[0])
                seconds[what] = fastest(r["step_seconds"] for r in rows(records))
            for what in cases:
                ratios[what].append(seconds["one"] / seconds[what])
        for what, (_, bound) in cases.items():
            report.at_least(f"tokens/s, {what} over one, {precision}, "
                            f"{[round(r, 3) for r in ratios[what]]}",
                            statistics.median(ratios[what]), bound)


SCENARIOS = {f.__name__: f for f in (products, recompute, depth, link, affine, memory, ranks)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO")
    parser.add_argument("--megatraind", help="default: bazel-bin/server/megatraind")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=12, help="of products, recompute and ranks")
    parser.add_argument("--link-layers", type=int, default=24, help="of link")
    parser.add_argument("--parameters", choices=("small", "large", "experts"), default="small")
    arguments = parser.parse_args()
    bench, report = engine_run.Bench(arguments.megatraind), Report()
    for name in arguments.scenario or SCENARIOS:
        SCENARIOS[name](bench, arguments, report)
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
