//! Headers on their way through: hop-by-hop ones end here, each request carries an id.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE,
    },
};
use regatta_planner::contract::DRAINING_HEADER;
use uuid::Uuid;

/// Names one request in the logs of client, gateway and engine.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// An engine sets it on a 503 that a draining engine gave without touching the request.
pub(crate) const DRAINING: HeaderName = HeaderName::from_static(DRAINING_HEADER);

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
const MAX_REQUEST_ID: usize = 128;

/// Removes what concerns one connection only (RFC 9110, section 7.6.1).
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Headers of the request to a pod: the client's, without those that the new connection sets itself.
pub(crate) fn for_upstream(mut headers: HeaderMap, request_id: &HeaderValue) -> HeaderMap {
    strip_hop_by_hop(&mut headers);
    for name in [HOST, CONTENT_LENGTH, EXPECT] {
        headers.remove(name);
    }
    headers.insert(REQUEST_ID, request_id.clone());
    headers
}

/// The client's own id when it is short and printable, else a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|id| {
        let bytes = id.as_bytes();
        (1..=MAX_REQUEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&Uuid::new_v4().simple().to_string())
            .expect("hexadecimal digits are a header value")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn headers_of_one_connection_end_here() {
        let mut headers = map(&[
            ("connection", "close, X-Private"),
            ("x-private", "1"),
            ("te", "trailers"),
            ("authorization", "Bearer k"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers, map(&[("authorization", "Bearer k")]));
    }

    #[test]
    fn a_sane_request_id_is_kept_and_any_other_replaced() {
        assert_eq!(request_id(&map(&[("x-request-id", "abc-1")])), "abc-1");
        assert_ne!(request_id(&map(&[("x-request-id", "a b")])), "a b");
        assert_eq!(request_id(&HeaderMap::new()).len(), 32);
    }
}
