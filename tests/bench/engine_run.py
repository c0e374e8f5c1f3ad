"""Runs `megatraind run` on made-up models and data for the benchmarks. Standard library only."""

import array
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def llama(hidden=768, layers=12, heads=12, kv_heads=None, intermediate=2048, vocabulary=32000,
          positions=1024, tied=True):
    """config.json of a Llama, as a dictionary."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads or heads, "head_dim": hidden // heads,
        "intermediate_size": intermediate, "vocab_size": vocabulary,
        "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "initializer_range": 0.02, "tie_word_embeddings": tied,
        "attention_bias": False, "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2,
        "torch_dtype": "float32",
    }


def experts(hidden=512, layers=8, heads=8, intermediate=320, experts=32, chosen=4,
            vocabulary=32000, positions=1024):
    """config.json of a Qwen3-MoE of 150M parameters, as a dictionary."""
    config = llama(hidden, layers, heads, vocabulary=vocabulary, positions=positions)
    del config["mlp_bias"]
    return config | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
        "num_experts": experts, "num_experts_per_tok": chosen, "decoder_sparse_step": 1,
        "moe_intermediate_size": intermediate, "norm_topk_prob": True, "mlp_only_layers": [],
    }


def parameters(config):
    """Of a llama() or experts() config; a tied matrix once."""
    hidden, head = config["hidden_size"], config["head_dim"]
    attention = hidden * head * (2 * config["num_attention_heads"]
                                 + 2 * config["num_key_value_heads"])
    if "num_experts" in config:  # with norms of query and key heads, and a router
        unit = 3 * hidden * config["moe_intermediate_size"] + hidden
        layer = attention + config["num_experts"] * unit + 2 * hidden + 2 * head
    else:
        layer = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    ends = config["vocab_size"] * hidden * (1 if config["tie_word_embeddings"] else 2)
    return config["num_hidden_layers"] * layer + ends + hidden


def yaml_lines(section, indent=0):
    lines = []
    for key, value in section.items():
        if isinstance(value, dict):
            lines.append("  " * indent + key + ":")
            lines += yaml_lines(value, indent + 1)
        else:  # JSON's scalars and lists are YAML's
            lines.append("  " * indent + f"{key}: {json.dumps(value)}")
    return lines


class Bench:
    """A temporary directory with models and data; `run` trains in it."""

    def __init__(self, megatraind=None):
        self.megatraind = megatraind or str(ROOT / "bazel-bin/server/megatraind")
        self.directory = tempfile.TemporaryDirectory(prefix="megatrain-bench-")
        self.path = pathlib.Path(self.directory.name)
        self.runs = 0

    def prepare(self, config, *, steps, sequence_length=1024, global_batch=8, micro_batch=2,
                precision="bf16", clipping=1.0, gradient_dtype="fp32", gradient_shards=1,
                every_steps=0, keep=1, **engine):
        """Writes model, data and job file; returns their directory."""
        self.runs += 1
        place = self.path / f"run{self.runs}"
        model = place / "model"
        model.mkdir(parents=True)
        (model / "config.json").write_text(json.dumps(config))
        generator = random.Random(1)
        tokens = array.array("I", (generator.randrange(config["vocab_size"])
                                   for _ in range(sequence_length * global_batch * 2)))
        (place / "tokens.bin").write_bytes(tokens.tobytes())
        job = {
            "name": "bench",
            "model": {"path": str(model), "initialization": "random"},
            "data": {"train": [{"path": str(place / "tokens.bin"), "format": "tokens",
                                "dtype": "uint32"}], "sequence_length": sequence_length},
            "training": {"steps": steps, "global_batch": global_batch, "micro_batch": micro_batch,
                         "precision": precision, "gradient_dtype": gradient_dtype,
                         "gradient_shards": gradient_shards},
            "optimizer": {"max_gradient_norm": clipping},
            # By default none while it runs; the one at the end is thrown away.
            "checkpoint": {"directory": str(place / "checkpoints"), "every_steps": every_steps,
                           "keep": keep},
            "engine": {"device": "cpu", **engine},
        }
        (place / "job.yaml").write_text("\n".join(yaml_lines(job)) + "\n")
        return place

    def preset(self, name):
        """config.json of a preset of `init`, as a dictionary."""
        path = self.path / "presets" / name
        if not path.exists():
            subprocess.run([self.megatraind, "init", "--preset", name, "--config-only", "--out",
                            str(path)], check=True, stdout=subprocess.DEVNULL)
        return json.loads((path / "config.json").read_text())

    def run(self, config, launcher=(), **settings):
        """Trains from random weights, `launcher` before the command. Returns (records, peak RSS in
        bytes)."""
        place = self.prepare(config, **settings)
        metrics = place / "metrics.jsonl"
        with open(place / "log", "w") as log:
            process = subprocess.Popen(
                [*launcher, self.megatraind, "run", str(place / "job.yaml"), "--metrics-out",
                 str(metrics)],
                stdout=log, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"megatraind run gave {process.returncode}:\n"
                               + (place / "log").read_text()[-4000:])
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        shutil.rmtree(place)
        return records, usage.ru_maxrss * 1024

    def plan(self, config, rates=(), nodes=1, **settings):
        """`megatraind plan` as an object; a job that does not fit (exit code 3) has one too."""
        place = self.prepare(config, **settings)
        command = [self.megatraind, "plan", str(place / "job.yaml"), "-o", "json",
                   "--nodes", str(nodes)]
        for rate in rates:
            command += ["--rate", rate]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode not in (0, 3):
            raise RuntimeError(f"megatraind plan gave {result.returncode}:\n{result.stderr}")
        shutil.rmtree(place)
        return json.loads(result.stdout)


def step_seconds(records, skip=1):
    """Median of the steps after the first `skip`, which warm up."""
    return statistics.median(record["step_seconds"] for record in records[skip:])
