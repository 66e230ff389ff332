//! Home of the CUDA kernels: sources in `csrc/*.cu` and one safe Rust function for each.
