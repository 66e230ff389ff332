//! The place of the CUDA kernels; `README.md` beside this crate says what will live here.
