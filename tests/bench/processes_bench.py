#!/usr/bin/env python3
"""Jobs of several processes: what the engine promises of their time and of the loss of one, measured
through `mpirun`, and where Slurm answers through `srun`.

    bazel build //server:megatraind
    python3 tests/bench/processes_bench.py [--megatraind PATH] [--rounds N] [SCENARIO...]

Scenarios (all by default):
  ranks   tokens/s of two processes with a thread each over one process with two
  link    --processes on each of two networks that a link of --gigabits joins, as on two machines:
          step time over the plan's prediction with the rate that the link was measured to have.
          Needs root, and iproute2
  kills   --kills times a random process of --ranks is killed at a random moment: the job must end
          within 30 s and say which rank it was, go on, and end with the bits of a job that nobody
          disturbed. Under mpirun; under mpirun that leaves it to the processes to find out; and
          under srun. --launchers takes some of these

Ratios are of one run on one machine; rounds of the compared settings are interleaved, and the fastest
step of each counts. Prints a line a figure with its bound; exits 1 if one is missed. Standard library
only.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import uuid

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
    """Bytes that the network of an address has sent over the link so far."""
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


ENDS_WITHIN_SECONDS = 30
LAUNCHERS = {
    "mpirun": [*MPIRUN, "-n"],
    # The end of one process ends no other.
    "recovery": [*MPIRUN, "--enable-recovery", "--mca", "orte_abort_on_non_zero_status", "0", "-n"],
    "srun": ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--cpu-bind=none", "--overcommit", "-n"],
}


def slurm_answers():
    return shutil.which("srun") is not None and subprocess.run(
        ["sinfo", "-h"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def final_state(place):
    """The files of the last checkpoint, by name."""
    last = max((place / "checkpoints").glob("step-????????"))
    return {"step": last.name} | {path.name: path.read_bytes()
                                  for path in last.glob("*.safetensors")}


def rank_process(run, rank):
    """The number of the process of this rank of a run on this machine, or None."""
    names = [f"{name}={rank}" for name in ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID")]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "exe").endswith("/megatraind"):
                variables = (process / "environ").read_bytes().decode(errors="replace").split("\0")
                if f"MEGATRAIN_BENCH_RUN={run}" in variables and any(
                        name in variables for name in names):
                    return int(process.name)
    return None


def says_cause(log, rank, left_to_ranks):
    # Behind the progress of a terminal, which mpirun gives its processes.
    own = re.findall(r"megatraind: .*", log)
    if left_to_ranks:
        return len(own) == 1 and re.search(rf"\branks? .*\b{rank}\b", own[0]) is not None
    return re.search(rf"\b(rank|task) {rank}\b", log) is not None


class KillsJob:
    """A job of some seconds, started anew for each kill."""

    STEPS = 60

    def __init__(self, bench, launcher, ranks):
        self.bench, self.launcher, self.ranks = bench, launcher, ranks
        config = engine_run.llama(hidden=128, layers=4, heads=4, intermediate=256, vocabulary=1024)
        self.place = bench.prepare(config, steps=self.STEPS, sequence_length=64, global_batch=8,
                                   micro_batch=1, precision="fp32", every_steps=7, keep=2)

    def start(self):
        run = uuid.uuid4().hex
        log = open(self.place / "log", "w")
        process = subprocess.Popen(
            [*LAUNCHERS[self.launcher], str(self.ranks), self.bench.megatraind, "run",
             str(self.place / "job.yaml"), "--metrics-out", str(self.place / "metrics.jsonl")],
            stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"MEGATRAIN_BENCH_RUN": run})
        log.close()
        return process, run

    def steps(self):
        with contextlib.suppress(OSError):
            return (self.place / "metrics.jsonl").read_bytes().count(b"\n")
        return 0

    def log(self):
        return (self.place / "log").read_text(errors="replace")

    def finish(self):
        process, _ = self.start()
        if process.wait() != 0:
            raise RuntimeError(f"the job did not end well:\n{self.log()[-4000:]}")
        return final_state(self.place)

    def kill_one(self, generator):
        """Returns the rank and the seconds until the end, or None if it had ended or not begun."""
        rank, step = generator.randrange(self.ranks), generator.randrange(self.STEPS)
        process, run = self.start()
        while process.poll() is None and self.steps() < step:
            time.sleep(0.001)
        time.sleep(generator.uniform(0, 0.2))
        victim = rank_process(run, rank)
        if victim is None:
            process.wait()
            return None
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            process.wait()
            return None
        begin = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=4 * ENDS_WITHIN_SECONDS)
        seconds = time.monotonic() - begin
        if process.poll() is None:
            process.kill()
            process.wait()
        return rank, seconds

    def remove(self):
        shutil.rmtree(self.place)


def kills(bench, arguments, report):
    generator = random.Random(arguments.seed)
    for launcher in arguments.launchers:
        if launcher == "srun" and not slurm_answers():
            print("kills, srun: no Slurm answers here", flush=True)
            continue
        undisturbed = KillsJob(bench, launcher, arguments.ranks)
        bits = undisturbed.finish()
        undisturbed.remove()
        counts, longest = collections.Counter(), 0.0
        while counts["kills"] < arguments.kills:
            job = KillsJob(bench, launcher, arguments.ranks)
            killed = job.kill_one(generator)
            if killed is None:
                job.remove()
                continue
            rank, seconds = killed
            counts["kills"] += 1
            counts["in time"] += seconds <= ENDS_WITHIN_SECONDS
            longest = max(longest, seconds)
            cause = says_cause(job.log(), rank, launcher == "recovery")
            if not cause:
                print(f"  rank {rank} was killed, and the job said:\n{job.log()[-2000:]}", flush=True)
            counts["with the cause"] += cause
            counts["same bits"] += job.finish() == bits
            print(f"  {launcher}: {dict(counts)}, the longest end took {longest:.1f} s", flush=True)
            job.remove()
        for what in ("in time", "with the cause", "same bits"):
            report.at_least(f"kills {what}, {launcher}, of {counts['kills']} of one of "
                            f"{arguments.ranks} processes", counts[what], counts["kills"])
        report.at_most(f"seconds to the end, {launcher}", longest, ENDS_WITHIN_SECONDS)


SCENARIOS = {f.__name__: f for f in (ranks, link, kills)}


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
    parser.add_argument("--kills", type=int, default=50, help="by each launcher")
    parser.add_argument("--ranks", type=int, default=4, help="of kills")
    parser.add_argument("--launchers", nargs="+", choices=LAUNCHERS, default=[*LAUNCHERS],
                        help="of kills")
    parser.add_argument("--seed", type=int, help="of the ranks and moments of kills; random")
    arguments = parser.parse_args()
    bench = engine_run.Bench(arguments.megatraind)
    report = Report()
    for name in arguments.scenarios or SCENARIOS:
        SCENARIOS[name](bench, arguments, report)
    sys.exit(1 if report.missed else 0)


if __name__ == "__main__":
    main()
