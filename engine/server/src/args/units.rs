//! Numbers with a suffix, as vLLM reads them: `k`, `m`, `g`, `t` are powers of 1000 and may follow a decimal fraction;
//! `K`, `M`, `G`, `T` are powers of 1024.

use std::str::FromStr;

/// A whole number, possibly written with a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count(pub(super) u64);

/// A [`Count`], or `auto` (also `-1`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Auto,
    Tokens(Count),
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not a whole number such as 8192, 8k (8000) or 8K (8192)");
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit: u64 = match &text[digits.len()..] {
            "" => 1,
            "k" => 1000,
            "m" => 1000_u64.pow(2),
            "g" => 1000_u64.pow(3),
            "t" => 1000_u64.pow(4),
            "K" => 1 << 10,
            "M" => 1 << 20,
            "G" => 1 << 30,
            "T" => 1 << 40,
            _ => return Err(refuse()),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let decimal_unit = unit > 1 && unit.is_multiple_of(1000);
        if !all_digits(whole) || !all_digits(fraction) || (digits.contains('.') && !decimal_unit) {
            return Err(refuse());
        }
        let scaled = || -> Option<u64> {
            let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
            if fraction.is_empty() {
                return Some(whole);
            }
            let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            let part = fraction.parse::<u64>().ok()?.checked_mul(unit)?;
            part.is_multiple_of(scale).then_some(())?;
            whole.checked_add(part / scale)
        };
        scaled().map(Self).ok_or_else(refuse)
    }
}

impl FromStr for Length {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" | "-1" => Ok(Self::Auto),
            _ => text.parse().map(Self::Tokens).map_err(|reason: String| format!("{reason}, or `auto`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_mean_what_they_mean_in_vllm() {
        let cases = [
            ("8192", 8192),
            ("8k", 8000),
            ("8K", 8192),
            ("25.6k", 25_600),
            ("1m", 1_000_000),
            ("2G", 2 << 30),
        ];
        for (text, value) in cases {
            assert_eq!(text.parse(), Ok(Count(value)), "{text}");
        }
    }

    #[test]
    fn what_is_no_whole_number_is_refused() {
        for text in ["", "k", "-3", "1.5", "1.5K", "1.00001k", "8kk", "8 k", "0x10", "99999999999T", "1e3"] {
            assert!(text.parse::<Count>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_length_may_be_left_to_the_engine() {
        assert_eq!("auto".parse(), Ok(Length::Auto));
        assert_eq!("-1".parse(), Ok(Length::Auto));
        assert_eq!("2K".parse(), Ok(Length::Tokens(Count(2048))));
    }
}
