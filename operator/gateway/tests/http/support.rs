//! Engines as whole HTTP servers, and a gateway in front of them, all on loopback.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::State, response::Response, routing::any};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, Request, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use jiff::Timestamp;
use regatta_gateway::{Gateway, Limits, Replica, Service, build_table, serve};
use regatta_planner::names::Claim;
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const MODEL: &str = "m";
const DEADLINE: Duration = Duration::from_secs(20);

/// What an engine does with a request.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Answers with headers and body of the request.
    Echo,
    /// Streams this many events.
    Events(usize),
    /// Streams what the sender is given, until it is dropped.
    Held(Arc<tokio::sync::Mutex<Option<mpsc::Receiver<Bytes>>>>),
    /// Refuses as a draining engine does.
    Draining,
}

pub(crate) struct Engine {
    pub address: SocketAddr,
    /// Requests that reached it.
    pub seen: Arc<AtomicUsize>,
    /// Ends it at once, with all its connections.
    pub kill: CancellationToken,
}

#[derive(Clone)]
struct Engaged {
    behaviour: Behaviour,
    seen: Arc<AtomicUsize>,
}

pub(crate) async fn engine(behaviour: Behaviour) -> Engine {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let state = Engaged { behaviour, seen: Arc::default() };
    let (seen, kill) = (state.seen.clone(), CancellationToken::new());
    let router = Router::new().fallback(any(answer)).with_state(state);
    let killed = kill.clone();
    // A runtime of its own is a process in miniature: its end closes every connection without a word.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let std = listener.into_std().expect("a listener");
            let listener = TcpListener::from_std(std).expect("a listener");
            tokio::select! {
                _ = axum::serve(listener, router) => {}
                () = killed.cancelled() => {}
            }
        });
    });
    Engine { address, seen, kill }
}

async fn answer(State(state): State<Engaged>, request: Request<Body>) -> Response {
    state.seen.fetch_add(1, Ordering::SeqCst);
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let events = |stream: stream::BoxStream<'static, Bytes>| {
        let stream = stream.map(Ok::<_, std::convert::Infallible>);
        Response::builder()
            .header(CONTENT_TYPE, "text/event-stream")
            .body(Body::from_stream(stream))
            .expect("a response")
    };
    match state.behaviour {
        Behaviour::Echo => {
            let mut response = Response::new(Body::from(body));
            *response.headers_mut() = parts.headers;
            response.headers_mut().remove("content-length");
            response
        }
        Behaviour::Events(count) => {
            events(stream::iter((0..count).map(|i| Bytes::from(format!("data: {i}\n\n")))).boxed())
        }
        Behaviour::Held(receiver) => {
            let receiver = receiver.lock().await.take().expect("one request");
            events(stream::unfold(receiver, |mut r| async { r.recv().await.map(|bytes| (bytes, r)) }).boxed())
        }
        Behaviour::Draining => Response::builder()
            .status(StatusCode::SERVICE_UNAVAILABLE)
            .header("x-regatta-draining", "true")
            .body(Body::empty())
            .expect("a response"),
    }
}

/// A stream that a test feeds; dropping the sender ends it.
pub(crate) fn held() -> (mpsc::Sender<Bytes>, Behaviour) {
    let (sender, receiver) = mpsc::channel(64);
    (sender, Behaviour::Held(Arc::new(tokio::sync::Mutex::new(Some(receiver)))))
}

pub(crate) struct Front {
    pub gateway: Gateway,
    pub address: SocketAddr,
    pub shutdown: CancellationToken,
    pub server: JoinHandle<()>,
    client: Client<HttpConnector, Full<Bytes>>,
}

pub(crate) async fn front(engines: &[SocketAddr], limits: Limits) -> Front {
    front_with(engines, limits, Duration::from_secs(5)).await
}

pub(crate) async fn front_with(engines: &[SocketAddr], limits: Limits, drain: Duration) -> Front {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let gateway = Gateway::new(limits);
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(gateway.clone(), listener, Duration::ZERO, drain, shutdown.clone()));
    let front = Front {
        gateway,
        address,
        shutdown,
        server,
        client: Client::builder(TokioExecutor::new()).build_http(),
    };
    front.route(engines);
    front
}

impl Front {
    pub(crate) fn route(&self, engines: &[SocketAddr]) {
        let service = Service {
            claim: Claim {
                namespace: "ns".into(),
                service: "svc".into(),
                created: Timestamp::UNIX_EPOCH,
                served_names: vec![MODEL.into()],
            },
            wanted: true,
        };
        let replica = |address: &SocketAddr| Replica {
            id: address.to_string(),
            namespace: "ns".into(),
            service: "svc".into(),
            name: address.to_string(),
            address: Some(*address),
            ready: true,
            draining: false,
            terminating: false,
        };
        let replicas: Vec<Replica> = engines.iter().map(replica).collect();
        self.gateway.publish(build_table(&[service], &replicas));
    }

    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        timeout(DEADLINE, self.client.request(request)).await.expect("an answer in time").expect("an answer")
    }

    pub(crate) async fn post(&self, body: &str) -> http::Response<Incoming> {
        self.send(self.request(body)).await
    }

    pub(crate) fn request(&self, body: &str) -> Request<Full<Bytes>> {
        let uri = format!("http://{}/v1/chat/completions?a=b", self.address);
        Request::post(uri)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .expect("a request")
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, serde_json::Value) {
        let uri = format!("http://{}{path}", self.address);
        let response = self.send(Request::get(uri).body(Full::default()).expect("a request")).await;
        let (status, _, body) = whole(response).await;
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    pub(crate) fn metric(&self, line: &str) -> Option<String> {
        let text = self.gateway.metrics();
        text.lines().find_map(|l| l.strip_prefix(line)).map(|value| value.trim().to_owned())
    }
}

pub(crate) fn ask() -> String {
    format!(r#"{{"model":"{MODEL}","stream":true}}"#)
}

pub(crate) async fn whole(response: http::Response<Incoming>) -> (StatusCode, HeaderMap, Bytes) {
    let (parts, body) = response.into_parts();
    let body =
        timeout(DEADLINE, body.collect()).await.expect("a body in time").expect("a whole body").to_bytes();
    (parts.status, parts.headers, body)
}

/// The next piece of a body.
pub(crate) async fn piece(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    let frame = timeout(DEADLINE, body.frame()).await.expect("a frame in time")?;
    Some(frame.map(|f| f.into_data().unwrap_or_default()))
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, poll).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}
