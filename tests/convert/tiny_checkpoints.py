"""Small transformers models of each family with seeded random weights, as folders and as GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

VOCAB, POSITIONS = 96, 64
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": POSITIONS,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}


def filled(model: PreTrainedModel, seed: int = 0) -> PreTrainedModel:
    """Every parameter drawn anew, biases and norms among them."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "bias" not in name:
            torch.nn.init.uniform_(parameter, 0.5, 1.5, generator=generator)
        else:
            torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    return model.eval()


def llama(**more: Any) -> PreTrainedModel:
    settings = {**SIZES, "tie_word_embeddings": False, "rms_norm_eps": 1e-5, **more}
    return filled(LlamaForCausalLM(LlamaConfig(**settings, attn_implementation="eager")))


def make(kind: str) -> PreTrainedModel:
    """A model of the kind named: a family, and what sets it apart."""
    if kind == "llama":
        return llama(rope_parameters={"rope_type": "default", "rope_theta": 5e4})
    if kind == "llama-tied-biased-wide-heads":
        return llama(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=24)
    if kind == "llama3-rope":
        return llama(rope_parameters=LLAMA3)
    if kind == "mistral":
        return filled(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None, attn_implementation="eager")))
    if kind == "qwen2":
        return filled(Qwen2ForCausalLM(Qwen2Config(**SIZES, attn_implementation="eager")))
    if kind == "qwen3":
        settings = {**SIZES, "head_dim": 32, "tie_word_embeddings": True}
        return filled(Qwen3ForCausalLM(Qwen3Config(**settings, attn_implementation="eager")))
    assert kind == "gpt2"
    sizes = {"vocab_size": VOCAB, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS}
    return filled(GPT2LMHeadModel(GPT2Config(**sizes, attn_implementation="eager")))


KINDS = ("llama", "llama-tied-biased-wide-heads", "llama3-rope", "mistral", "qwen2", "qwen3", "gpt2")

GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    stem, _, member = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{member}"
    return f"{GGUF_NAMES[stem]}.{member}"


def paired(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows `[heads * D, ..]` whose rotary pairs are half a head apart, put side by side."""
    width = values.shape[0] // heads
    within = [half * (width // 2) + i for i in range(width // 2) for half in (0, 1)]
    return values[[head * width + row for head in range(heads) for row in within]]


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    metadata: dict[str, Any] | None = None,
    extra: dict[str, np.ndarray] | None = None,
) -> None:
    """The model as a GGUF file, its matrices in the number format `kind` and its vectors in f32."""
    config = model.config
    family = config.model_type
    writer = gguf.GGUFWriter(path, family)
    writer.add_name("Tiny of tests")
    writer.add_license("apache-2.0")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_key_length(model.model.layers[0].self_attn.head_dim)
    for key, value in (metadata or {}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        else:
            writer.add_uint32(key, value)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().numpy()
        if family == "llama" and ".q_proj." in name:
            values = paired(values, config.num_attention_heads)
        if family == "llama" and ".k_proj." in name:
            values = paired(values, config.num_key_value_heads)
        if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(values))
        else:
            packed = gguf.quants.quantize(np.ascontiguousarray(values), kind)
            writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
    for name, values in (extra or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
