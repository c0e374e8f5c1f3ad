"""Routers of transformers' models with experts: what they choose, how clear the choice is, and
weights for which it is clear. make_model_references.py says why it must be."""
import contextlib
import math

import torch


def is_router(module):
    return type(module).__name__.lower().endswith(("topkrouter", "textrouter"))


def has_own_input(router):
    return hasattr(router, "per_expert_scale")  # Gemma 4


def router_logits(router, x):
    if has_own_input(router):
        return router.proj(router.norm(x) * router.scale * router.scalar_root_size)
    return torch.nn.functional.linear(x, router.weight, getattr(router, "bias", None))


def choose(router, logits):
    """The weights and experts of each token, and the least change of a score that changes them."""
    k = router.config.top_k_experts if has_own_input(router) else router.top_k
    correction = getattr(router, "e_score_correction_bias", None)
    if correction is None and hasattr(router, "bias"):  # gpt-oss
        top, choice = logits.topk(k)
        ranked, weights = logits, top.softmax(-1)
        margin = torch.full(logits.shape[:1], math.inf, dtype=logits.dtype)
    elif correction is None:
        ranked = logits.softmax(-1)
        weights, choice = ranked.topk(k)
        if getattr(router, "norm_topk_prob", True):
            weights = weights / weights.sum(-1, keepdim=True)
        if has_own_input(router):
            weights = weights * router.per_expert_scale[choice]
        margin = torch.full(logits.shape[:1], math.inf, dtype=logits.dtype)
    else:
        scores = logits.sigmoid()
        ranked = scores + correction
        groups = ranked.view(-1, router.num_group, router.num_experts // router.num_group)
        sums = groups.topk(2, -1).values.sum(-1)
        kept = sums.topk(router.topk_group, -1).indices
        order = sums.sort(-1, descending=True).values
        margin = torch.full(logits.shape[:1], math.inf, dtype=logits.dtype)
        if router.topk_group < router.num_group:
            margin = order[:, router.topk_group - 1] - order[:, router.topk_group]
        mask = torch.ones_like(sums, dtype=torch.bool).scatter(1, kept, False)
        ranked = groups.masked_fill(mask[:, :, None], -math.inf).view_as(scores)
        choice = ranked.topk(k).indices
        weights = scores.gather(1, choice)
        if router.norm_topk_prob:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = weights * router.routed_scaling_factor
    order = ranked.sort(-1, descending=True).values
    return weights, choice, torch.minimum(margin, order[:, k - 1] - order[:, k])


def plain_route(self, x):
    """A router in the type of its input; transformers' are in FP32 in part."""
    logits = router_logits(self, x.reshape(-1, x.shape[-1]))
    weights, choice, _ = choose(self, logits)
    return logits, weights, choice


@contextlib.contextmanager
def watched_choices(model):
    """Collects of each router's call which experts each token goes to, and the least margin."""
    seen = []

    def note(router, _, output):
        logits, _, choice = output
        if has_own_input(router) and router.forward.__func__ is not plain_route:
            logits = logits.log()  # it returns their softmax
        margin = choose(router, logits.detach().double())[2].min().item()
        seen.append((choice.sort(-1).values, margin))

    hooks = [m.register_forward_hook(note) for m in model.modules() if is_router(m)]
    yield seen
    for hook in hooks:
        hook.remove()


def differing(a, b):
    """The number of choices of experts in which two collections differ."""
    assert len(a) == len(b)
    return sum(int((x != y).any(-1).sum()) for (x, _), (y, _) in zip(a, b))


CODE = 12  # elements of the embedding that routers look at
CODE_SCALE = 2.5
# The least margins of scores that count as clear.
CLEAR = dict(MixtralTopKRouter=0.15, Qwen3MoeTopKRouter=0.11, GptOssTopKRouter=0.7,
             Glm4MoeTopkRouter=0.15, DeepseekV3TopkRouter=0.15, Qwen3NextTopKRouter=0.11,
             Qwen3_5MoeTopKRouter=0.11, Gemma4TextRouter=0.11)


def clear_choices(model, generator, rounded):
    """Makes experts depend on the first elements of a token's embedding, and the choice clear.

    Attention and experts add little to these elements. Each token's are drawn until no router that
    sees them alone is in doubt.
    """
    pairs = [(layer.post_attention_layernorm, module) for layer in model.model.layers
             for module in layer.mlp.children() if is_router(module)]
    pairs += [(lambda x: x, layer.router) for layer in model.model.layers
              if hasattr(layer, "router")]
    table = model.model.embed_tokens.weight
    with torch.no_grad():
        for name, p in model.model.layers.named_parameters():
            if "o_proj" in name or "out_proj" in name or "down_proj" in name:
                transposed = model.config.model_type == "gpt_oss" and name.endswith("down_proj")
                written = p if "bias" in name or transposed else p.transpose(-1, -2)
                written[..., :CODE] *= 0.25
        for _, router in pairs:
            own = has_own_input(router)
            weight = router.proj.weight if own else router.weight
            factor = math.sqrt(weight.shape[1]) if own else 1.0
            weight[:, CODE:] = rounded(0.5 * factor * weight[:, CODE:])
            noise = torch.randn(weight.shape[0], CODE, generator=generator)
            weight[:, :CODE] = rounded(0.3 * factor * noise)
            if hasattr(router, "e_score_correction_bias"):
                noise = torch.randn(router.num_experts, generator=generator)
                router.e_score_correction_bias.copy_(0.1 * noise)
        open_tokens = torch.arange(table.shape[0])
        while len(open_tokens):
            noise = torch.randn(len(open_tokens), CODE, generator=generator)
            table[open_tokens, :CODE] = rounded(CODE_SCALE * noise)
            rows = table[open_tokens]
            clear = torch.ones(len(open_tokens), dtype=torch.bool)
            for norm, router in pairs:
                logits = router_logits(router, norm(rows))
                clear &= choose(router, logits)[2] > CLEAR[type(router).__name__]
            open_tokens = open_tokens[~clear]
