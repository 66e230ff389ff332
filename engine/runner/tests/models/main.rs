//! Whole models, from files to tokens.

mod dequantize;
mod invariance;
mod open;
mod plans;
mod play;
mod reference;
mod tiny;
