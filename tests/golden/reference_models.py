"""Makes the small models of model_families.py, writes them as HF model directories, and loads them
in FP64 (with norms, routers and delta nets in FP64 too), FP32 or BF16."""
import copy
import json
import os
import re
import types

import torch
from safetensors.torch import save_file

from expert_choices import clear_choices, is_router, plain_route
from model_families import FAMILIES, adds_one, auto_class, seed_of


def round_to_bf16(x):
    """To nearest, ties away from zero: as the masters' upper half is rounded."""
    bits = x.detach().float().contiguous().view(torch.int32)
    return ((bits + 0x8000) & ~0xFFFF).view(torch.float32)


def text_parameters(model):
    """Those of the text model with their names in the text family; all, if it is no wrapper."""
    wrapped = "model.language_model."
    parameters = list(model.named_parameters())
    if any(k.startswith(wrapped) for k, _ in parameters):
        return [(k.replace(wrapped, "model."), p) for k, p in parameters
                if k.startswith(wrapped) or k == "lm_head.weight"]
    return parameters


def write_config(config, style, rope_keys, dtype, directory, auto, absent, published):
    config.save_pretrained(directory)
    path = os.path.join(directory, "config.json")
    with open(path) as f:
        keys = json.load(f)
    for unused in ("transformers_version", "_name_or_path", *absent):
        keys.pop(unused, None)
    if published:
        text = keys.get("text_config", keys)
        del text["per_layer_config"]
        text.update(published)
    keys["architectures"] = [type(auto.from_config(config)).__name__]
    if style == "old":
        keys.pop("rope_parameters")
        keys.pop("dtype", None)
        keys["torch_dtype"] = dtype
        keys["rope_theta"] = rope_keys["rope_theta"]
        scaling = {k: v for k, v in rope_keys.items() if k != "rope_theta"}
        keys["rope_scaling"] = None if scaling["rope_type"] == "default" else scaling
        if keys["model_type"] == "qwen3_moe":
            keys["num_experts"] = keys.pop("num_local_experts")
    else:
        keys["dtype"] = dtype
    with open(path, "w") as f:
        json.dump(keys, f, indent=2, sort_keys=True)
        f.write("\n")


def disk_tensors(model, tensors):
    """The tensors of a model under the names of its file: see make_model_references.py."""
    kind = model.config.model_type
    if kind not in ("mixtral", "qwen3_moe", "glm4_moe", "deepseek_v3", "qwen3_next",
                    "qwen3_5_moe_text"):
        return tensors
    names = ("w1", "w3", "w2") if kind == "mixtral" else ("gate_proj", "up_proj", "down_proj")
    disk = {}
    for name, tensor in tensors.items():
        if kind == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        head, _, tail = name.rpartition(".")
        if not head.endswith(".experts"):
            disk[name] = tensor
            continue
        for e, part in enumerate(tensor):
            gate, up, down = (f"{head}.{e}.{n}.weight" for n in names)
            if tail == "gate_up_proj":
                disk[gate], disk[up] = part.chunk(2)
            else:
                disk[down] = part
    return disk


def make_model(name, directory):
    """Random weights for which no gradient is negligible."""
    family = FAMILIES[name]
    config = family["cls"](max_position_embeddings=256, bos_token_id=0, eos_token_id=1,
                           rope_parameters=dict(family["rope"]), use_cache=True,
                           **family["keys"])
    if "wrapper" in family:
        config = family["wrapper"](text_config=config.to_dict(), **family["around"],
                                   tie_word_embeddings=config.tie_word_embeddings)
    write_config(config, family["style"], family["rope"],
                 {"F32": "float32", "BF16": "bfloat16"}[family["stored"]], directory,
                 auto_class(name), family.get("absent", []), family.get("published", {}))
    model = auto_class(name).from_config(config, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed_of(name))
    rounded = round_to_bf16 if family["stored"] == "BF16" else lambda x: x
    state = {}
    for key, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if re.search(r"norm(_\d)?\.weight$", key):
            value = 0.2 * noise if adds_one(name, key) else 1.0 + 0.2 * noise
            if name.startswith("gemma4") and key.endswith(("q_norm.weight", "k_norm.weight")):
                # Its scores are not divided by sqrt(head_dim).
                value = family.get("heads", 0.45) * value
            if "post_" in key:
                value = family.get("branches", 1.0) * value
        elif key.endswith("A_log"):  # from heads that forget at once to heads that hardly do
            value = 1.5 * noise - 2.0
        elif key.endswith("conv1d.weight"):
            value = noise
        elif key.endswith("bias"):
            value = 0.3 * noise
            if key.endswith("gate_up_proj_bias"):  # gate and up in turn; see check_clamps
                value[:, [0, 3, 5]] = torch.tensor([7.0, 7.0, -7.0])
        elif "embed_tokens" in key:
            value = 0.15 * noise
        elif key.endswith(("router.scale", "per_expert_scale")):
            value = 1.0 + 0.2 * noise
        elif key.endswith("sinks"):
            value = noise
        elif key == "lm_head.weight":
            value = family.get("head", 0.09) * noise
        else:
            value = 0.09 * noise
        state[key] = rounded(value)
    # A factor of each layer's result, which is no parameter.
    scalars = {k: b for k, b in model.named_buffers() if k.endswith("layer_scalar")}
    with torch.no_grad():
        for scalar in scalars.values():
            noise = torch.randn(scalar.shape, generator=generator)
            scalar.copy_(rounded(0.8 + 0.2 * noise))
    routers = {k: m for k, m in model.named_modules() if is_router(m)}
    if routers:
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.copy_(state[key])
        clear_choices(model, generator, rounded)
        state = disk_tensors(model, {k: p.detach() for k, p in model.named_parameters()})
    stored = torch.bfloat16 if family["stored"] == "BF16" else torch.float32
    if "wrapper" in family:  # save_pretrained has names of its own for these
        with open(os.path.join(directory, "config.json")) as f:
            keys = f.read()
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                parameter.copy_(state[key])
        model.to(stored).save_pretrained(directory)
        with open(os.path.join(directory, "config.json"), "w") as f:
            f.write(keys)
        os.remove(os.path.join(directory, "generation_config.json"))
        return
    state = {k: v.to(stored).contiguous() for k, v in {**state, **scalars}.items()}
    for key, router in routers.items():  # kept in FP32 by transformers
        if hasattr(router, "e_score_correction_bias"):
            state[key + ".e_score_correction_bias"] = router.e_score_correction_bias
    save_file(state, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})


def plain_norm(self, x):
    weight = getattr(self, "weight", 1)
    if type(self).__name__.startswith(("Gemma2", "Gemma3", "Qwen3Next", "Qwen3_5")):
        weight = 1 + weight
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon_))


def plain_delta_net(self, hidden_states, **_):
    """A gated delta net token by token, in the type of its input; transformers' is FP32 in part."""
    keys, heads = self.num_k_heads, self.num_v_heads
    batch, n = hidden_states.shape[:2]
    by_head = lambda x, count: x.reshape(batch, n, count, -1)
    if hasattr(self, "in_proj_qkvz"):
        *qkvz, b, a = self.fix_query_key_value_ordering(self.in_proj_qkvz(hidden_states),
                                                        self.in_proj_ba(hidden_states))
        mixed, z = torch.cat([x.reshape(batch, n, -1) for x in qkvz[:3]], -1), qkvz[3]
    else:
        mixed, z = self.in_proj_qkv(hidden_states), by_head(self.in_proj_z(hidden_states), heads)
        b, a = self.in_proj_b(hidden_states), self.in_proj_a(hidden_states)
    kernel = self.conv_kernel_size
    padded = torch.nn.functional.pad(mixed, (0, 0, kernel - 1, 0))
    mixed = sum(padded[:, j : j + n] * self.conv1d.weight[:, 0, j] for j in range(kernel))
    mixed = torch.nn.functional.silu(mixed)
    q, k, v = mixed.split([self.key_dim, self.key_dim, self.value_dim], -1)
    q, k = (by_head(x, keys).repeat_interleave(heads // keys, 2) for x in (q, k))
    q, k = (x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q, v, beta = q * self.head_k_dim**-0.5, by_head(v, heads), b.sigmoid()
    decay = torch.exp(-self.A_log.exp() * torch.nn.functional.softplus(a + self.dt_bias))
    state, rows = torch.zeros(batch, heads, self.head_k_dim, self.head_v_dim, dtype=q.dtype), []
    for t in range(n):
        state = state * decay[:, t, :, None, None]
        change = (v[:, t] - (state * k[:, t, :, :, None]).sum(2)) * beta[:, t, :, None]
        state = state + k[:, t, :, :, None] * change[:, :, None]
        rows.append((state * q[:, t, :, :, None]).sum(2))
    x = torch.stack(rows, 1)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.layer_norm_epsilon)
    x = self.norm.weight * x * torch.nn.functional.silu(z)
    return self.out_proj(x.reshape(batch, n, -1))


def is_delta_net(module):
    return type(module).__name__.endswith("GatedDeltaNet")


def to_double(model):
    model = copy.deepcopy(model).double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.epsilon_ = getattr(module, "variance_epsilon", None) or module.eps
            module.forward = types.MethodType(plain_norm, module)
        if is_router(module):
            module.forward = types.MethodType(plain_route, module)
        if is_delta_net(module):
            module.forward = types.MethodType(plain_delta_net, module)
    return model


def to_bf16(model):
    model = copy.deepcopy(model).to(torch.bfloat16)
    for module in model.modules():
        if hasattr(module, "e_score_correction_bias"):
            module.e_score_correction_bias = module.correction_.clone()
    return model


def load(directory, dtype=torch.float32, rounded=False):
    name = os.path.basename(directory)
    attention = FAMILIES[name].get("attention", "sdpa")
    model = auto_class(name).from_pretrained(directory, dtype=torch.float32,
                                             attn_implementation=attention,
                                             experts_implementation="eager")
    assert model.config._attn_implementation == attention
    if rounded:
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(round_to_bf16(p))
    for module in model.modules():
        if hasattr(module, "e_score_correction_bias"):
            module.correction_ = module.e_score_correction_bias.clone()
    if dtype == torch.float64:
        return to_double(model)
    return to_bf16(model) if dtype == torch.bfloat16 else model
