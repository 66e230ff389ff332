"""Writes a tiny Llama folder as GGUF, in F32: to_gguf.py FOLDER OUT.

The rows of each query and key head change places, so that rotated elements stand side by side, and the divisors of
Llama 3's rope scaling become the tensor `rope_freqs.weight`.
"""
import json
import math
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, MODEL_ARCH, get_tensor_name_map
from safetensors.numpy import load_file


def side_by_side(weight, heads):
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)


def divisors(config):
    rope, half = config["rope_scaling"], config["head_dim"] // 2
    frequency = config["rope_theta"] ** (-np.arange(half) / half)
    turns = rope["original_max_position_embeddings"] * frequency / (2 * math.pi)
    kept = np.clip((turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"]), 0, 1)
    return (1 / (kept + (1 - kept) / rope["factor"])).astype(np.float32)


def main():
    folder, out = Path(sys.argv[1]), sys.argv[2]
    config = json.loads((folder / "config.json").read_text())
    writer = GGUFWriter(out, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, weight in load_file(folder / "model.safetensors").items():
        if "q_proj" in name:
            weight = side_by_side(weight, config["num_attention_heads"])
        if "k_proj" in name:
            weight = side_by_side(weight, config["num_key_value_heads"])
        writer.add_tensor(names.get_name(name.removesuffix(".weight")) + ".weight", weight)
    writer.add_tensor("rope_freqs.weight", divisors(config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
