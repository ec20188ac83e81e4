"""From a transformers config.json to a package: which source computes it, with which generics and bindings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from linnet.convert.config import Config
from linnet.registry.errors import shown

# The block of weights that one scale serves in the FP8 source.
FP8_BLOCK = 128
MISTRAL_WINDOW = 4096
# That of `std.nn.norm::LayerNorm`.
GPT2_EPSILON = 1e-5
_CAUSAL = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
FAMILIES = tuple(_CAUSAL)


@dataclass(frozen=True, slots=True)
class Design:
    """What a package says of an architecture.

    `template`: the package in `nests/` whose source it takes; `constants`: source file -> constant -> value;
    `llama3_rotary`: whether that rule's rotary tables replace the template's; `fp8`: whether projections are FP8 bytes.
    `unused` are patterns of tensors that nothing reads on purpose.
    """

    family: str
    template: str
    generics: Mapping[str, int]
    constants: Mapping[str, Mapping[str, float]]
    bindings: Mapping[str, str]
    tags: tuple[str, ...]
    unused: tuple[str, ...] = ()
    llama3_rotary: bool = False
    fp8: bool = False
    tied: bool = False


def design_of(config: Config, tensors: Collection[str]) -> Design:
    """The design of a model from its config and its tensors' names.

    Raises ConvertError for an architecture or a feature that the sources here do not compute, and for keys that are
    absent or of the wrong kind.
    """
    family = config.data.get("model_type")
    if not isinstance(family, str) or family not in _CAUSAL:
        given = f"the model_type {family!r}" if family is not None else "no model_type"
        raise config.error(f"names {given}", f"Known are {', '.join(FAMILIES)}; others need a source of their own.")
    architectures = config.data.get("architectures") or [_CAUSAL[family]]
    if architectures != [_CAUSAL[family]]:
        what = f"names the architectures {architectures!r}"
        raise config.error(what, f"Of {family} only {_CAUSAL[family]} is known: convert the language model itself.")
    make: Callable[[Config, Collection[str]], Design] = _gpt2 if family == "gpt2" else _decoder
    design = make(config, tensors)
    # A layer without a tensor of its own is none, and a check would go through all of them.
    if (layers := design.generics["Layers"]) > len(tensors):
        raise config.error(f"gives {layers} layers", f"The checkpoint holds only {len(tensors)} tensors.")
    # Said here, since a check would let an optional tensor, such as one layer's bias, be absent.
    stored = [name.replace("{i}", str(i)) for name in design.bindings.values() for i in range(layers)]
    if absent := [name for name in dict.fromkeys(stored) if name not in tensors]:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        what = f"describes a model with the tensor {shown(absent[0])}{more}, which the checkpoint does not hold"
        raise config.error(what, "Fetch the checkpoint again, or correct its configuration.")
    unused = tuple(pattern for pattern in design.unused if any(fnmatchcase(name, pattern) for name in tensors))
    return dataclasses.replace(design, unused=unused)


def _decoder(config: Config, tensors: Collection[str]) -> Design:
    """Llama, Mistral, Qwen2 and Qwen3: rotary positions, grouped-query attention, gated feed-forward layers."""
    family = str(config.data["model_type"])
    _refuse_windows(config)
    if config.data.get("hidden_act", "silu") != "silu":
        raise config.error(f"gives hidden_act as {config.data['hidden_act']!r}", "Only silu is known.")
    width, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    head_default = max(width // heads, 1) if family != "qwen3" else 128
    generics = {
        "Vocab": config.integer("vocab_size"),
        "H": width,
        "Heads": heads,
        "KvHeads": config.integer("num_key_value_heads", heads),
        "HeadDim": config.integer("head_dim", head_default),
        "Inner": config.integer("intermediate_size"),
        "Layers": config.integer("num_hidden_layers"),
        "Batch": 1,
        "MaxSeq": config.integer("max_position_embeddings"),
    }
    fp8 = _is_fp8(config)
    theta, stretch = _rotary(config)
    tied = config.flag("tie_word_embeddings", default=False)
    if stretch and family == "qwen3":
        raise config.error("stretches its rotary positions by the rule llama3", "For qwen3 no rule is known.")
    constants: dict[str, dict[str, float]] = {
        "src/norm.linnet": {"EPS": config.number("rms_norm_eps", 1e-6)},
        "src/rotary.linnet": {"THETA": theta, **stretch},
    }
    template = ("qwen3-8b-fp8" if fp8 else "qwen3-8b") if family == "qwen3" else "smollm2-135m-instruct"
    tags = ["text-generation", "decoder-only"]
    tags += ["grouped-query-attention"] if generics["KvHeads"] < heads else []
    tags += ["qk-norm"] if family == "qwen3" else []
    tags += ["fp8"] if fp8 else []
    return Design(
        family=family,
        template=template,
        generics=generics,
        constants=constants,
        bindings=_decoder_bindings(family, tensors, tied=tied, fp8=fp8),
        tags=tuple(tags),
        unused=("model.layers.*.self_attn.rotary_emb.inv_freq", *(("lm_head.weight",) if tied else ())),
        llama3_rotary=bool(stretch),
        fp8=fp8,
        tied=tied,
    )


def _decoder_bindings(family: str, tensors: Collection[str], *, tied: bool, fp8: bool) -> dict[str, str]:
    projections = {f"attention.{part}": f"self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "o_proj")}
    gates = {f"mlp.{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    norms = {f"attention.{part}": f"self_attn.{part}" for part in ("q_norm", "k_norm")} if family == "qwen3" else {}
    order = {
        "attention_norm": "input_layernorm",
        **projections,
        **norms,
        "mlp_norm": "post_attention_layernorm",
        **gates,
    }
    bindings = {"embedding.weight": "model.embed_tokens.weight"}
    for path, name in order.items():
        members = {"weight": "weight"}
        if path in {**projections, **gates}:
            members |= {"scale": "weight_scale_inv"} if fp8 else {}
            members |= {"bias": "bias"} if f"model.layers.0.{name}.bias" in tensors else {}
        for member, stored in members.items():
            bindings[f"layers.{{i}}.{path}.{member}"] = f"model.layers.{{i}}.{name}.{stored}"
    bindings["norm.weight"] = "model.norm.weight"
    bindings["lm_head.weight"] = "model.embed_tokens.weight" if tied else "lm_head.weight"
    return bindings


def _rotary(config: Config) -> tuple[float, dict[str, float]]:
    """The base of the rotary frequencies, and the constants of llama3's rule where that stretches them."""
    table = config.table("rope_parameters") or config.table("rope_scaling")
    if table is None:
        return config.number("rope_theta", 10000.0), {}
    theta = table.number("rope_theta", config.number("rope_theta", 10000.0))
    rule = table.data.get("rope_type", table.data.get("type")) or "default"
    if table.data.get("partial_rotary_factor", 1.0) != 1.0:
        raise table.error("rotates only a part of each head", "Name a model that rotates whole heads.")
    if rule == "default":
        return theta, {}
    if rule != "llama3":
        what = f"stretches rotary positions by the rule {rule!r}"
        raise table.error(what, "Of such rules only llama3 is known: name a model without it.")
    return theta, {
        "FACTOR": table.number("factor"),
        "LOW": table.number("low_freq_factor"),
        "HIGH": table.number("high_freq_factor"),
        "ORIGINAL": float(table.integer("original_max_position_embeddings")),
    }


def _refuse_windows(config: Config) -> None:
    """Raises ConvertError for attention within a window that ends before the last position."""
    mistral = config.data["model_type"] == "mistral"
    context = config.integer("max_position_embeddings")
    # Mistral's configs mean this window where they give none; Qwen's give one that they do not use.
    given = config.data.get("sliding_window", MISTRAL_WINDOW if mistral else None)
    used = config.flag("use_sliding_window", default=mistral) and given is not None
    kinds = [kind for kind in config.items("layer_types") if kind != "full_attention"]
    if any(kind != "sliding_attention" for kind in kinds) or (kinds and not used):
        raise config.error("has layers of other attention", "Name a model that attends to all positions.")
    if used:
        size = config.integer("sliding_window", MISTRAL_WINDOW)
        if size < context:
            what = f"attends within a sliding window of {size} positions"
            help = "Name a model that attends to all positions, or set max_position_embeddings to"
            raise config.error(what, f"{help} {size} in a copy of the folder.")


def _is_fp8(config: Config) -> bool:
    table = config.table("quantization_config")
    if table is None:
        return False
    method, block = table.data.get("quant_method"), table.data.get("weight_block_size")
    if config.data["model_type"] != "qwen3" or method != "fp8" or block != [FP8_BLOCK, FP8_BLOCK]:
        what = f"stores its weights by the method {method!r}"
        what += f" in blocks of {block}" if block is not None else ""
        help = f"Only qwen3's FP8 in blocks of {FP8_BLOCK} by {FP8_BLOCK} is known: name an unquantised checkpoint."
        raise config.error(what, help)
    return True


def _gpt2(config: Config, tensors: Collection[str]) -> Design:
    activation = config.data.get("activation_function", "gelu_new")
    if activation not in ("gelu_new", "gelu_pytorch_tanh"):
        raise config.error(f"gives activation_function as {activation!r}", "Only gelu_new is known.")
    for key, usual in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
        ("tie_word_embeddings", True),
    ):
        if config.flag(key, default=usual) is not usual:
            raise config.error(f"sets {key}", f"Only checkpoints where it is {str(usual).lower()} are known.")
    if (epsilon := config.number("layer_norm_epsilon", GPT2_EPSILON)) != GPT2_EPSILON:
        raise config.error(f"gives layer_norm_epsilon as {epsilon!r}", f"Only {GPT2_EPSILON!r} is known.")
    width, positions = config.integer("n_embd", 768), config.integer("n_positions", 1024)
    generics = {
        "Vocab": config.integer("vocab_size", 50257),
        "Positions": positions,
        "H": width,
        "Heads": config.integer("n_head", 12),
        "Inner": config.integer("n_inner", 4 * width),
        "Layers": config.integer("n_layer", 12),
        "Batch": 1,
        "MaxSeq": positions,
    }
    # The published files store the decoder alone; transformers writes it as a part of the language model.
    prefix = "transformer." if "transformer.wte.weight" in tensors else ""
    parts = {
        "attention_norm": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "mlp_norm": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    }
    bindings = {f"{table}.weight": f"{prefix}{table}.weight" for table in ("wte", "wpe") if prefix}
    for path, name in parts.items():
        for member in ("weight", "bias"):
            bindings[f"layers.{{i}}.{path}.{member}"] = f"{prefix}h.{{i}}.{name}.{member}"
    for member in ("weight", "bias"):
        bindings[f"norm.{member}"] = f"{prefix}ln_f.{member}"
    return Design(
        family="gpt2",
        template="gpt2",
        generics=generics,
        constants={},
        bindings=bindings,
        tags=("text-generation", "decoder-only"),
        unused=(f"{prefix}h.*.attn.bias", f"{prefix}h.*.attn.masked_bias", "lm_head.weight"),
        tied=True,
    )
