#!/usr/bin/env python3
"""Jobs of several processes: what the engine promises of their time, measured through `mpirun`.

    bazel build //server:megatraind
    python3 tests/bench/processes_bench.py [--megatraind PATH] [--rounds N] [SCENARIO...]

Scenarios (all by default):
  ranks   tokens/s of two processes with a thread each over one process with two
  link    --processes on each of two networks that a link of --gigabits joins, as on two machines:
          step time over the plan's prediction with the rate that the link was measured to have.
          Needs root, and iproute2

Ratios are of one run on one machine; rounds of the compared settings are interleaved, and the fastest
step of each counts. Prints a line a figure with its bound; exits 1 if one is missed. Standard library
only.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys

import engine_run
from step_bench import Report, fastest, rows

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def ranks(bench, arguments, report):
    config = engine_run.llama(layers=arguments.layers)
    for precision in ("fp32", "bf16") if arguments.bf16 else ("fp32",):
        ratios = []
        for _ in range(arguments.rounds):
            seconds = {}
            for what, launcher, threads in (("one", (), 2), ("two", [*MPIRUN, "-n", "2"], 1)):
                records, _ = bench.run(config, launcher, steps=4, precision=precision,
                                       recompute="none", threads=threads)
                seconds[what] = fastest(r["step_seconds"] for r in rows(records))
            ratios.append(seconds["one"] / seconds["two"])
        report.at_least(f"tokens/s, two processes over one, {precision}, "
                        f"{[round(r, 3) for r in ratios]}", statistics.median(ratios), 0.85)


@contextlib.contextmanager
def joined_networks(directory, gigabits):
    """Two networks joined by a link of this rate. Gives the command that runs another one on the
    network of an address, where it sees a machine of its own."""
    names = {f"127.77.0.{i}": f"megatrain-bench-{os.getpid()}-{i}" for i in (1, 2)}

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True)

    agent = pathlib.Path(directory) / "on_network"
    cases = "\n".join(f"  {address}) name={name} ;;" for address, name in names.items())
    agent.write_text(f"""#!/bin/bash
case $1 in
{cases}
esac
shift
boot_id={directory}/$name
echo $name >$boot_id
exec nsenter --net=/run/netns/$name unshare --uts --mount bash -c "hostname $name
mount --bind $boot_id /proc/sys/kernel/random/boot_id; $*"
""")
    agent.chmod(0o755)
    try:
        for name in names.values():
            ip("netns", "add", name)
        first, second = names.values()
        ip("-n", first, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", second)
        for address, name in names.items():
            ip("-n", name, "link", "set", "lo", "up")
            subprocess.run(["nsenter", f"--net=/run/netns/{name}", "sysctl", "-qw",
                            "net.ipv4.conf.all.route_localnet=1"], check=True)
            ip("-n", name, "addr", "del", "127.0.0.1/8", "dev", "lo")
            ip("-n", name, "addr", "add", "127.0.0.1/16", "dev", "lo")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "v0")
            ip("-n", name, "link", "set", "v0", "up")
            subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", "v0", "root", "tbf",
                            "rate", f"{gigabits}gbit", "burst", "256kb", "limit", "4mb"],
                           check=True)
        yield str(agent), list(names)
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False)


RECEIVER = """
import socket, time
server = socket.create_server(("{address}", 7777))
print("ready", flush=True)
connection, _ = server.accept()
received, start = 0, time.monotonic()
while chunk := connection.recv(1 << 20):
    received += len(chunk)
print(received / (time.monotonic() - start))
"""
SENDER = """
import socket
connection = socket.create_connection(("{address}", 7777))
for _ in range({chunks}):
    connection.sendall(bytes(1 << 20))
"""


def link_rate(agent, addresses, megabytes):
    """Bytes per second of one TCP connection over the link."""
    def start(address, program):
        return subprocess.Popen([agent, address, f"python3 -c '{program}'"],
                                stdout=subprocess.PIPE, text=True)

    receiver = start(addresses[1], RECEIVER.format(address=addresses[1]))
    receiver.stdout.readline()
    sender = start(addresses[0], SENDER.format(address=addresses[1], chunks=megabytes))
    rate = float(receiver.stdout.readline())
    for process in (sender, receiver):
        process.wait()
    return rate


def sent_bytes(agent, address):
    """What the network of an address has sent over the link so far."""
    shown = subprocess.run([agent, address, "ip -s -j link show v0"], check=True,
                           capture_output=True, text=True)
    return json.loads(shown.stdout)[0]["stats64"]["tx"]["bytes"]


def link(bench, arguments, report):
    processes = arguments.processes
    # One process a network is planned for as two devices of this machine, whose processors they
    # share.
    machines = dict(nodes=2, devices=processes, threads=processes) if processes > 1 else dict(
        devices=2, threads=2)
    exchange = "network" if processes > 1 else "collective"
    config = engine_run.llama(hidden=512, layers=8, heads=8, intermediate=1408, vocabulary=8192)
    with joined_networks(bench.path, arguments.gigabits) as (agent, addresses):
        rate = link_rate(agent, addresses, int(200 * arguments.gigabits))
        print(f"the link moves {rate / 1e6:.1f} MB/s", flush=True)
        launcher = [agent, addresses[0], *MPIRUN, "--mca", "plm_rsh_agent", agent, "--host",
                    ",".join(f"{address}:{processes}" for address in addresses)]
        for interface in ("btl_tcp_if_include", "oob_tcp_if_include"):
            launcher += ["--mca", interface, "127.77.0.0/24"]
        for clipping in (1.0, 0.0):
            settings = dict(precision="fp32", recompute="none", clipping=clipping,
                            sequence_length=arguments.sequence,
                            global_batch=max(arguments.batch, 2 * processes), micro_batch=1)
            ratios = []
            for _ in range(arguments.rounds):
                # Processes have their shards alone, where devices of one may load whole tiles.
                plan = bench.plan(config, rates=[f"{exchange}={rate / 1e9}"], steps=4,
                                  loads="shards", **machines, **settings)
                bound = plan["predicted_step"]["step_seconds"]
                before = sent_bytes(agent, addresses[0])
                records, _ = bench.run(config, launcher, steps=4, threads=1, **settings)
                sent = (sent_bytes(agent, addresses[0]) - before) / len(records)
                seconds = fastest(r["step_seconds"] for r in rows(records))
                record = records[-1]
                busy = record["lane_busy_seconds"]
                predicted = plan["predicted_step"]["lane_busy_seconds"]
                print(f"  predicted {bound:.3f} s, measured {seconds:.3f} s; collective "
                      f"{busy['collective']:.3f} s, compute {busy['compute']:.3f} s, predicted "
                      f"{predicted['collective']:.3f} s and "
                      f"{predicted['compute']:.3f} s; a network sent {sent / 1e6:.1f} MB a step",
                      flush=True)
                ratios.append(seconds / bound)
            report.at_most(f"step time over the prediction, 2 x {processes} processes, "
                           f"{arguments.gigabits} Gbit/s, clipping "
                           f"{clipping}, {[round(r, 3) for r in ratios]}",
                           statistics.median(ratios), 1.15)


SCENARIOS = {f.__name__: f for f in (ranks, link)}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], default=[])
    parser.add_argument("--megatraind")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2, help="of ranks")
    parser.add_argument("--bf16", action="store_true", help="ranks in BF16 too")
    parser.add_argument("--gigabits", type=float, default=1.0, help="a second, of the link")
    parser.add_argument("--processes", type=int, default=1, help="on each network, of link")
    parser.add_argument("--batch", type=int, default=2, help="sequences a step, of link")
    parser.add_argument("--sequence", type=int, default=256, help="tokens of each, of link")
    arguments = parser.parse_args()
    bench = engine_run.Bench(arguments.megatraind)
    report = Report()
    for name in arguments.scenarios or SCENARIOS:
        SCENARIOS[name](bench, arguments, report)
    sys.exit(1 if report.missed else 0)


if __name__ == "__main__":
    main()
