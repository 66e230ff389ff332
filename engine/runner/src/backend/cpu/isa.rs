//! Which instruction set the kernels use: the best that the processor has, or the one that is asked for.

use std::fmt;

use super::simd::{Kernel, portable::Portable};
#[cfg(target_arch = "x86_64")]
use super::simd::{avx2::Avx2, avx512::Avx512};

/// The environment variable that overrides the choice.
pub const ISA_VARIABLE: &str = "REGATTA_ISA";

/// An instruction set that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// An instruction set was asked for that is not there.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("instruction set `{asked}` ({ISA_VARIABLE}) is not available here: use one of {}", .available.join(", "))]
pub struct IsaError {
    /// The value asked for.
    pub asked: String,
    /// What this processor can run.
    pub available: Vec<&'static str>,
}

impl Isa {
    /// All that this processor has, best first. The last one is portable.
    pub fn available() -> Vec<Self> {
        let mut sets = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if Avx512::detected() {
                sets.push(Self(Kind::Avx512Vnni));
            }
            if Avx2::detected() {
                sets.push(Self(Kind::Avx2));
            }
        }
        sets.push(Self(Kind::Portable));
        sets
    }

    /// The one of this name (`avx512vnni`, `avx2` or `portable`), or the best.
    pub fn choose(name: Option<&str>) -> Result<Self, IsaError> {
        let available = Self::available();
        let Some(name) = name else { return Ok(available[0]) };
        available.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| IsaError {
            asked: name.to_owned(),
            available: available.iter().map(|isa| isa.name()).collect(),
        })
    }

    /// The one named by [`ISA_VARIABLE`], or the best.
    pub fn from_env() -> Result<Self, IsaError> {
        let name = std::env::var_os(ISA_VARIABLE).filter(|name| !name.is_empty());
        Self::choose(name.map(|name| name.to_string_lossy().into_owned()).as_deref())
    }

    /// Its name, as [`ISA_VARIABLE`] takes it.
    pub const fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512Vnni => "avx512vnni",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            Kind::Portable => "portable",
        }
    }

    /// Runs a kernel compiled for this set.
    pub(super) fn run<K: Kernel>(self, kernel: K) {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: made by `available` alone, after detection.
            Kind::Avx512Vnni => unsafe { Avx512::enter(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Kind::Avx2 => unsafe { Avx2::enter(kernel) },
            Kind::Portable => Portable::enter(kernel),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_set_is_chosen_unless_one_is_named() {
        assert_eq!(Isa::choose(None), Ok(Isa::available()[0]));
        assert_eq!(Isa::choose(Some("portable")).map(Isa::name), Ok("portable"));
    }

    #[test]
    fn an_unknown_set_is_refused_with_the_names_of_those_that_are_there() {
        let error = Isa::choose(Some("avx9000")).unwrap_err();
        assert!(error.to_string().contains("avx9000") && error.to_string().contains("portable"), "{error}");
    }
}
