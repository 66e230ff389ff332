//! Where a file comes from.

use reqwest::Url;

use super::FetchError;

/// A checked URI and the form of it that people and logs see.
#[derive(Debug)]
pub(super) struct Source {
    url: Url,
    shown: String,
    has_checksum: bool,
}

impl Source {
    /// Takes an `http` or `https` URI; `has_checksum` says whether its content will be held to one.
    pub(super) fn parse(uri: &str, has_checksum: bool) -> Result<Self, FetchError> {
        let url = Url::parse(uri).map_err(|error| FetchError::InvalidUri(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(FetchError::UnsupportedScheme { scheme: url.scheme().to_owned() });
        }
        let mut shown = url.clone();
        // Neither can fail for a URI with a host, which these schemes have.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        shown.set_query(None);
        shown.set_fragment(None);
        Ok(Self { url, shown: shown.to_string(), has_checksum })
    }

    /// What to ask for.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Whether a checksum will tell that the content is whole.
    pub(super) fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// The URI without user, password and query, which may all be secrets.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_uri_are_not_shown() {
        let source =
            Source::parse("https://ada:secret@example.org:8443/a/b.gguf?sig=secret#secret", true).unwrap();
        assert_eq!(source.shown(), "https://example.org:8443/a/b.gguf");
    }

    #[test]
    fn other_schemes_are_named() {
        let error = Source::parse("file:///models/a.gguf", true).unwrap_err().to_string();
        assert!(error.contains("`file://`") && error.contains("needs no fetch"), "{error}");
        assert!(matches!(Source::parse("models/a.gguf", true), Err(FetchError::InvalidUri(_))));
    }
}
