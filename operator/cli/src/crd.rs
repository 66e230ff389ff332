use std::io::Write;

use crate::args::CrdArgs;

/// Prints the definition, or the page about it.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn print(args: &CrdArgs) -> anyhow::Result<()> {
    let text = if args.markdown { regatta_crds::markdown() } else { regatta_crds::yaml() };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}
