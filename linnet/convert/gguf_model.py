"""What a GGUF file says about a model, in the words of a transformers folder: config.json and tensor names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from linnet.convert.errors import ConvertError
from linnet.convert.gguf_file import GgufFile, GgufTensor
from linnet.convert.numbers import Floats
from linnet.convert.rope_scaling import find_llama3_scaling
from linnet.registry.errors import shown

# Mistral's checkpoints are "llama" too: the two compute the same.
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
ROPE_FREQUENCIES = "rope_freqs.weight"
_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class GgufModel:
    """`config`: what config.json says of the model; `tensors`: transformers' name -> tensor, in the file's order."""

    file: GgufFile
    config: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    def values(self, name: str) -> Floats:
        """A tensor in f32, its rows in transformers' order. Raises ConvertError."""
        values = self.file.values(self.tensors[name])
        part = re.search(r"self_attn\.([qk])_proj\.", name)
        if self.config["model_type"] != "llama" or part is None:
            return values
        heads = self.config["num_attention_heads" if part[1] == "q" else "num_key_value_heads"]
        return half_split(values, heads)


def half_split(values: Floats, heads: int) -> Floats:
    """Rows of a query or key projection `[heads * D, ..]`, from rotary pairs side by side to pairs half a head apart.

    Llama's GGUF files pair row `2 i` of a head with row `2 i + 1`; transformers pairs row `i` with row `i + D / 2`.
    """
    rest = values.shape[1:]
    pairs = values.reshape(heads, -1, 2, *rest)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def read_model(file: GgufFile) -> GgufModel:
    """The model of a GGUF file. Raises ConvertError for an architecture, a feature or a tensor that is not known."""
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        given = shown(architecture) if isinstance(architecture, str) else "no architecture"
        known = ", ".join(ARCHITECTURES)
        raise ConvertError(f"{file.path} holds {given}; those of {known} can be converted. Name a file of one of them.")
    keys = _Keys(file, architecture)
    keys.refuse_features()
    tensors = {name: tensor for tensor in file.tensors.values() if (name := _name(file, tensor)) is not None}
    if "model.embed_tokens.weight" not in tensors:
        raise keys.error("holds no token_embd.weight", "Name the whole model, not a part of a split one.")
    vocab, width = tensors["model.embed_tokens.weight"].shape
    heads = keys.integer("attention.head_count")
    head_width = keys.integer("attention.key_length", width // max(heads, 1))
    config: dict[str, Any] = {
        "architectures": [ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": vocab,
        "hidden_size": keys.integer("embedding_length"),
        "num_hidden_layers": keys.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.integer("attention.head_count_kv", heads),
        "head_dim": head_width,
        "intermediate_size": keys.integer("feed_forward_length"),
        "max_position_embeddings": keys.integer("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10000.0),
        "hidden_act": "silu",
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in tensors,
        "mlp_bias": "model.layers.0.mlp.up_proj.bias" in tensors,
    }
    if keys.integer("rope.dimension_count", head_width) != head_width:
        raise keys.error("rotates only a part of each head", "Name a model that rotates whole heads.")
    if ROPE_FREQUENCIES in file.tensors:
        factors = file.values(file.tensors[ROPE_FREQUENCIES])
        scaling = find_llama3_scaling(factors, config["rope_theta"], head_width)
        if scaling is None:
            raise keys.error(
                "stretches its rotary positions by factors that no known rule gives (rope_freqs.weight)",
                "Convert the transformers folder of the same model.",
            )
        config["rope_scaling"] = scaling
    for key, name in (("bos_token_id", "bos"), ("eos_token_id", "eos")):
        if isinstance(token := file.metadata.get(f"tokenizer.ggml.{name}_token_id"), int):
            config[key] = token
    return GgufModel(file, config, tensors)


class _Keys:
    """The metadata of one architecture, each value checked."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.file, self.architecture = file, architecture

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.error(f"gives {self.architecture}.{key} as {value!r}", "A number of at least 1 is needed there.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if not isinstance(value, float) or not 0 < value < float("inf"):
            raise self.error(f"gives {self.architecture}.{key} as {value!r}", "A positive number is needed there.")
        # The shortest number that is the same in f32, in which GGUF stores it: 1e-05 and not 9.999999747378752e-06.
        return float(str(np.float32(value)))

    def refuse_features(self) -> None:
        """Raises ConvertError for what changes the computation and that the sources here do not have."""
        get = self.file.metadata.get
        if get(f"{self.architecture}.expert_count"):
            raise self.error("is a mixture of experts", "Name a model with one feed-forward layer.")
        window, context = (get(f"{self.architecture}.{key}") for key in ("attention.sliding_window", "context_length"))
        if isinstance(window, int) and isinstance(context, int) and 0 < window < context:
            raise self.error(
                f"attends within a sliding window of {window} positions", "Name a model that attends to all."
            )
        scaling = get(f"{self.architecture}.rope.scaling.type", "none")
        if scaling != "none":
            raise self.error(f"stretches its rotary positions by the rule {scaling!r}", "Name a model without it.")

    def error(self, fault: str, help: str) -> ConvertError:
        return ConvertError(f"{self.file.path} {fault}. {help}")

    def _get(self, key: str, default: float | None) -> Any:
        value = self.file.metadata.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise self.error(f"gives no {self.architecture}.{key}", "Write the file anew with a current tool.")
        return value


def _name(file: GgufFile, tensor: GgufTensor) -> str | None:
    """What transformers calls a tensor; None for one that is read elsewhere."""
    if tensor.name == ROPE_FREQUENCIES:
        return None
    if found := re.fullmatch(r"(\w+)\.(weight)", tensor.name):
        part = _TOP.get(found[1])
        if part is not None:
            return f"{part}.weight"
    if found := re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", tensor.name):
        part = _LAYER.get(found[2])
        if part is not None:
            return f"model.layers.{int(found[1])}.{part}.{found[3]}"
    raise ConvertError(
        f"{file.path} holds the tensor {shown(tensor.name)}, which the architecture "
        f"{file.metadata['general.architecture']} is not known to have. Name another file, or a transformers folder."
    )
