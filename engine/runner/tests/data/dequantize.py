"""Quantised tensors and their values by the package `gguf`: dequantize.py SEED OUT.safetensors.

For each type `T` the file gets `T.data`, the raw blocks, and `T.values`, the F32 values.
"""
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

COLUMNS = 512


def random_q6_k(rng, rows):
    """The package does not quantise to Q6_K: any bytes are valid quants and scales."""
    blocks = rng.integers(0, 256, (rows, COLUMNS // 256, 210), dtype=np.uint8)
    scales = rng.uniform(-0.1, 0.1, (rows, COLUMNS // 256, 1)).astype(np.float16)
    blocks[..., 208:] = scales.view(np.uint8)
    return blocks.reshape(rows, -1)


def main():
    rng = np.random.default_rng(int(sys.argv[1]))
    tensors = {}
    for ty in (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q6_K):
        values = (rng.standard_normal((2, COLUMNS)) * np.exp(rng.standard_normal((2, COLUMNS)))).astype(np.float32)
        data = random_q6_k(rng, 2) if ty == Type.Q6_K else quantize(values, ty)
        tensors[f"{ty.name}.values"] = np.ascontiguousarray(dequantize(data, ty), dtype=np.float32)
        tensors[f"{ty.name}.data"] = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
    save_file(tensors, sys.argv[2])


main()
