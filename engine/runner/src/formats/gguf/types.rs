//! Numbers of tensor types in GGUF.

use crate::weights::WeightType;

/// The supported type with this number.
pub(super) fn weight_type(number: u32) -> Option<WeightType> {
    match number {
        0 => Some(WeightType::F32),
        1 => Some(WeightType::F16),
        2 => Some(WeightType::Q4_0),
        3 => Some(WeightType::Q4_1),
        8 => Some(WeightType::Q8_0),
        14 => Some(WeightType::Q6_K),
        30 => Some(WeightType::BF16),
        _ => None,
    }
}

/// The published name of a type without support, where it has one.
pub(super) fn published_name(number: u32) -> Option<&'static str> {
    Some(match number {
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        12 => "Q4_K",
        13 => "Q5_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return None,
    })
}
