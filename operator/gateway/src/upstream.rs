//! Connections to engines.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri, uri::PathAndQuery};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};

use crate::{Limits, metrics::Cause};

/// Shorter than engines keep an idle connection, so that few requests meet one that closes.
const POOL_IDLE: Duration = Duration::from_secs(20);
const POOL_IDLE_PER_HOST: usize = 256;
const KEEPALIVE: Duration = Duration::from_secs(30);

/// A request that can be sent more than once.
pub(crate) struct Outgoing {
    pub method: Method,
    pub path: PathAndQuery,
    pub headers: HeaderMap,
    pub body: Bytes,
}

#[derive(Clone)]
pub(crate) struct Upstream {
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An attempt that gave no response.
pub(crate) struct Failure {
    pub cause: Cause,
    pub reason: String,
}

impl Upstream {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(limits.connect_timeout));
        connector.set_keepalive(Some(KEEPALIVE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(POOL_IDLE_PER_HOST)
            .build(connector);
        Self { client }
    }

    /// Sends one attempt; resolves with the head of the response.
    pub(crate) async fn send(
        &self,
        address: SocketAddr,
        outgoing: &Outgoing,
    ) -> Result<Response<Incoming>, Failure> {
        let mut request = Request::new(Full::new(outgoing.body.clone()));
        *request.method_mut() = outgoing.method.clone();
        *request.headers_mut() = outgoing.headers.clone();
        *request.uri_mut() = Uri::builder()
            .scheme("http")
            .authority(address.to_string())
            .path_and_query(outgoing.path.clone())
            .build()
            .expect("an address and a path make a URI");
        self.client.request(request).await.map_err(|e| Failure {
            cause: if e.is_connect() { Cause::Connect } else { Cause::Reset },
            reason: chain(&e),
        })
    }
}

/// An error with its causes, since the outer text alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
