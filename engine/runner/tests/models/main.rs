//! Whole models, from files to tokens.

mod dequantize;
mod invariance;
mod play;
mod reference;
mod tiny;
