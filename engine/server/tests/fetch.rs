//! `fetch` against a real server that misbehaves.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use futures::StreamExt;
use regatta_engine::fetch::{FetchError, Progress, RetryPolicy, fetch};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ETAG: &str = "\"v1\"";
/// Bytes that arrive before a connection is cut.
const SENT: usize = 3000;

/// Failures come fast, so that tests need not wait for them.
fn policy() -> RetryPolicy {
    RetryPolicy {
        max_attempts: 3,
        max_first_attempts: 2,
        stall_timeout: Duration::from_secs(20),
        first_wait: Duration::from_millis(1),
        max_wait: Duration::from_millis(5),
    }
}

fn content() -> Vec<u8> {
    (0..200_000u32).flat_map(u32::to_le_bytes).collect()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A server on loopback that gives each request, numbered from 0, to `answer`; it ends with the test's runtime.
struct Server {
    uri: String,
    requests: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Server {
    async fn start(answer: impl Fn(usize, &HeaderMap) -> Response + Clone + Send + Sync + 'static) -> Self {
        // The first caller installs it for the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, number) = (requests.clone(), Arc::new(AtomicUsize::new(0)));
        let handler = move |request: Request| {
            seen.lock().unwrap().push(request.headers().clone());
            let response = answer(number.fetch_add(1, Ordering::Relaxed), request.headers());
            async { response }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://ada:secret@{}/model.gguf?sig=secret", listener.local_addr().unwrap());
        let app = Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { uri, requests }
    }

    fn num_requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn header(&self, request: usize, name: header::HeaderName) -> Option<String> {
        let requests = self.requests.lock().unwrap();
        requests[request].get(name).map(|value| value.to_str().unwrap().to_owned())
    }
}

struct Target {
    folder: tempfile::TempDir,
}

impl Target {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("model.gguf")
    }

    fn part(&self) -> PathBuf {
        self.folder.path().join("model.gguf.part")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The file is there with these bytes, and beside it only the note that says where it came from.
    #[track_caller]
    fn assert_holds(&self, bytes: &[u8]) {
        assert!(std::fs::read(self.file()).unwrap() == bytes, "the content differs");
        assert_eq!(self.names(), ["model.gguf", "model.gguf.fetched.json"]);
    }
}

async fn run(uri: &str, to: &Path, sha256: Option<&str>) -> Result<Vec<Progress>, FetchError> {
    let mut seen = Vec::new();
    fetch(uri, to, sha256, &policy(), &mut |progress| seen.push(progress)).await?;
    Ok(seen)
}

fn whole(bytes: Vec<u8>, etag: &str) -> Response {
    ([(header::ETAG, etag)], bytes).into_response()
}

/// Announces all of `bytes` from `first` on, sends `sent` of them and cuts the connection.
fn cut(bytes: &[u8], first: usize, sent: usize) -> Response {
    let (head, announced) = (Bytes::copy_from_slice(&bytes[first..first + sent]), bytes.len() - first);
    let pieces = futures::stream::once(async { Ok(head) });
    let broken = futures::stream::once(async {
        // Lets the server send what it has, so little that the socket takes it at once.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("cut"))
    });
    let response = Response::builder().header(header::CONTENT_LENGTH, announced).header(header::ETAG, ETAG);
    response.body(Body::from_stream(pieces.chain(broken))).unwrap()
}

/// The rest that the request asks for, as a well-behaved server sends it.
fn rest(bytes: &[u8], headers: &HeaderMap, etag: &str) -> Response {
    let range = headers.get(header::RANGE).map(|range| range.to_str().unwrap());
    let first =
        range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    match first {
        Some(first) if headers.get(header::IF_RANGE).is_some_and(|wanted| wanted == etag) => {
            let range = format!("bytes {first}-{}/{}", bytes.len() - 1, bytes.len());
            let headers = [(header::CONTENT_RANGE, range.as_str()), (header::ETAG, etag)];
            (StatusCode::PARTIAL_CONTENT, headers, bytes[first..].to_vec()).into_response()
        }
        _ => whole(bytes.to_vec(), etag),
    }
}

#[tokio::test]
async fn a_file_is_brought_checked_and_put_in_place() {
    let (server, target) = (Server::start(|_, _| whole(content(), ETAG)).await, Target::new());
    let progress = run(&server.uri, &target.file(), Some(&sha256(&content()))).await.unwrap();
    target.assert_holds(&content());
    let total = Some(content().len() as u64);
    assert_eq!(progress.first(), Some(&Progress::Received { num_bytes: 0, total }));
    assert_eq!(progress.last(), Some(&Progress::Done));
}

#[tokio::test]
async fn a_cut_connection_goes_on_where_it_stopped() {
    let server = Server::start(|number, headers| match number {
        0 => cut(&content(), 0, SENT),
        _ => rest(&content(), headers, ETAG),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), Some(&sha256(&content()))).await.unwrap();
    target.assert_holds(&content());
    assert_eq!(server.header(0, header::RANGE), None);
    assert_eq!(server.header(1, header::RANGE).as_deref(), Some("bytes=3000-"));
    assert_eq!(server.header(1, header::IF_RANGE).as_deref(), Some(ETAG));
}

#[tokio::test]
async fn a_new_run_goes_on_where_the_last_one_gave_up() {
    let server = Server::start(|number, headers| match number {
        0 => cut(&content(), 0, SENT),
        1..=3 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        _ => rest(&content(), headers, ETAG),
    });
    let (server, target) = (server.await, Target::new());
    let error = run(&server.uri, &target.file(), None).await.unwrap_err();
    assert!(matches!(error, FetchError::GaveUp { attempts: 3, .. }), "{error}");
    assert!(!target.file().exists() && target.part().exists());
    let before = server.num_requests();
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&content());
    assert_eq!(server.header(before, header::RANGE).as_deref(), Some("bytes=3000-"));
}

#[tokio::test]
async fn a_server_that_ignores_ranges_sends_all_again() {
    let server = Server::start(|number, _| match number {
        0 => cut(&content(), 0, SENT),
        _ => whole(content(), ETAG),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&content());
}

#[tokio::test]
async fn content_that_changed_meanwhile_is_brought_anew() {
    let changed: Vec<u8> = content().into_iter().rev().collect();
    let served = changed.clone();
    let server = Server::start(move |number, headers| match number {
        0 => cut(&content(), 0, SENT),
        _ => rest(&served, headers, "\"v2\""),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&changed);
}

#[tokio::test]
async fn a_part_of_other_content_is_not_appended() {
    let changed: Vec<u8> = content().into_iter().rev().collect();
    let served = changed.clone();
    let server = Server::start(move |number, headers| match number {
        0 => cut(&content(), 0, SENT),
        // Ignores If-Range: a part of the new content for the old ETag.
        1 => {
            let range = format!("bytes {SENT}-{}/{}", served.len() - 1, served.len());
            let headers = [(header::CONTENT_RANGE, range.as_str()), (header::ETAG, "\"v2\"")];
            (StatusCode::PARTIAL_CONTENT, headers, served[SENT..].to_vec()).into_response()
        }
        _ => rest(&served, headers, "\"v2\""),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&changed);
}

#[tokio::test]
async fn a_part_from_another_place_is_not_appended() {
    let server = Server::start(|number, headers| match number {
        0 => cut(&content(), 0, SENT),
        1 => {
            let range = format!("bytes 0-{}/{}", content().len() - 1, content().len());
            (StatusCode::PARTIAL_CONTENT, [(header::CONTENT_RANGE, range)], content()).into_response()
        }
        _ => rest(&content(), headers, ETAG),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&content());
}

#[tokio::test]
async fn an_address_where_nothing_answers_is_given_up_sooner() {
    let server = Server::start(|_, _| StatusCode::OK.into_response()).await;
    let nobody = server.uri.replace("127.0.0.1", "127.0.0.2");
    let error = run(&nobody, &Target::new().file(), None).await.unwrap_err();
    assert!(matches!(error, FetchError::GaveUp { attempts: 2, .. }), "{error}");
}

#[tokio::test]
async fn without_a_strong_etag_nothing_is_resumed() {
    let server = Server::start(|number, headers| match number {
        0 => {
            let mut response = cut(&content(), 0, SENT);
            response.headers_mut().insert(header::ETAG, "W/\"v1\"".parse().unwrap());
            response
        }
        _ => rest(&content(), headers, "W/\"v1\""),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&content());
    assert_eq!(server.header(1, header::RANGE), None);
}

#[tokio::test]
async fn a_server_that_always_sends_less_than_it_announces_is_given_up() {
    let (server, target) = (Server::start(|_, _| cut(&content(), 0, 1000)).await, Target::new());
    let error = run(&server.uri, &target.file(), None).await.unwrap_err();
    assert!(matches!(error, FetchError::GaveUp { attempts: 3, .. }), "{error}");
    assert!(!target.file().exists());
}

#[tokio::test]
async fn content_with_another_checksum_is_deleted() {
    let (server, target) =
        (Server::start(|_, _| whole(b"<html>sorry</html>".to_vec(), ETAG)).await, Target::new());
    let error = run(&server.uri, &target.file(), Some(&sha256(&content()))).await.unwrap_err();
    assert!(matches!(error, FetchError::Checksum { .. }), "{error}");
    assert_eq!(target.names(), [""; 0]);
    assert_eq!(server.num_requests(), 1);
}

#[tokio::test]
async fn a_damaged_part_is_brought_anew() {
    let server = Server::start(|number, headers| match number {
        0 => cut(&content(), 0, SENT),
        1..=3 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        _ => rest(&content(), headers, ETAG),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), None).await.unwrap_err();
    std::fs::write(target.part(), vec![7; SENT]).unwrap();
    run(&server.uri, &target.file(), Some(&sha256(&content()))).await.unwrap();
    target.assert_holds(&content());
}

#[tokio::test]
async fn a_refusal_ends_at_once_and_shows_no_secret() {
    for (status, remedy) in [(404, "existing file"), (403, "credentials"), (400, "plain get")] {
        let status = StatusCode::from_u16(status).unwrap();
        let (server, target) = (Server::start(move |_, _| status.into_response()).await, Target::new());
        let error = run(&server.uri, &target.file(), None).await.unwrap_err().to_string();
        assert!(error.contains(status.as_str()) && error.contains(remedy), "{error}");
        assert!(error.contains("/model.gguf") && !error.contains("secret"), "{error}");
        assert_eq!(server.num_requests(), 1);
        assert_eq!(target.names(), [""; 0], "nothing is left behind");
    }
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_but_not_for_as_long_as_it_likes() {
    let server = Server::start(|number, _| match number {
        0 => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "3600")]).into_response(),
        1 => StatusCode::BAD_GATEWAY.into_response(),
        _ => whole(content(), ETAG),
    });
    let (server, target) = (server.await, Target::new());
    let progress = run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&content());
    let waits = progress.iter().filter_map(|progress| match progress {
        Progress::Retrying { wait, .. } => Some(*wait),
        _ => None,
    });
    assert_eq!(waits.collect::<Vec<_>>(), [policy().max_wait, policy().first_wait * 2]);
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = || Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
    let (server, target) = (Server::start(move |_, _| Response::new(silent())).await, Target::new());
    let policy = RetryPolicy { stall_timeout: Duration::from_millis(50), ..policy() };
    let error = fetch(&server.uri, &target.file(), None, &policy, &mut |_| {}).await.unwrap_err().to_string();
    assert!(error.contains("silent"), "{error}");
}

#[tokio::test]
async fn nobody_listening_is_said_without_secrets() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://ada:secret@{}/a?sig=secret", listener.local_addr().unwrap());
    drop(listener);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let error = run(&uri, &Target::new().file(), None).await.unwrap_err().to_string();
    assert!(error.contains("refused") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_right_file_stays_and_a_wrong_one_is_replaced() {
    let (server, target) = (Server::start(|_, _| whole(content(), ETAG)).await, Target::new());
    std::fs::write(target.file(), content()).unwrap();
    let progress = run(&server.uri, &target.file(), Some(&sha256(&content()))).await.unwrap();
    assert_eq!(progress, [Progress::AlreadyComplete]);
    assert_eq!(server.num_requests(), 0);
    std::fs::write(target.file(), "old").unwrap();
    run(&server.uri, &target.file(), Some(&sha256(&content()))).await.unwrap();
    target.assert_holds(&content());
}

#[tokio::test]
async fn without_a_checksum_a_file_stays_only_when_a_fetch_of_the_same_uri_brought_it_whole() {
    let (server, target) = (Server::start(|_, _| whole(content(), ETAG)).await, Target::new());
    std::fs::write(target.file(), "from elsewhere").unwrap();
    let progress = run(&server.uri, &target.file(), None).await.unwrap();
    assert_eq!(progress.first(), Some(&Progress::Replacing));
    target.assert_holds(&content());
    assert_eq!(run(&server.uri, &target.file(), None).await.unwrap(), [Progress::AlreadyComplete]);
    assert_eq!(server.num_requests(), 1);
    std::fs::write(target.file(), &content()[..SENT]).unwrap();
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&content());
    let other = Server::start(|_, _| whole(b"other".to_vec(), ETAG)).await;
    run(&other.uri, &target.file(), None).await.unwrap();
    target.assert_holds(b"other");
}

/// Answers every connection with these bytes and closes it.
async fn plain(answer: &'static str) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/model.gguf", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    uri
}

#[tokio::test]
async fn content_that_ends_with_the_connection_needs_a_checksum() {
    let (uri, target) = (plain("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc").await, Target::new());
    let error = run(&uri, &target.file(), None).await.unwrap_err();
    assert!(matches!(error, FetchError::NoLength { .. }), "{error}");
    assert_eq!(target.names(), [""; 0]);
    run(&uri, &target.file(), Some(&sha256(b"abc"))).await.unwrap();
    target.assert_holds(b"abc");
}

#[tokio::test]
async fn content_in_chunks_is_whole_with_its_last_chunk_and_not_before() {
    let whole = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let target = Target::new();
    run(&plain(whole).await, &target.file(), None).await.unwrap();
    target.assert_holds(b"abc");
    let broken = whole.strip_suffix("0\r\n\r\n").unwrap();
    let target = Target::new();
    let error = run(&plain(broken).await, &target.file(), None).await.unwrap_err();
    assert!(matches!(error, FetchError::GaveUp { .. }), "{error}");
    assert!(!target.file().exists());
}

#[tokio::test]
async fn two_at_once_do_not_write_the_same_file() {
    let (server, target) = (Server::start(|_, _| whole(content(), ETAG)).await, Target::new());
    let other = std::fs::File::create(target.part()).unwrap();
    other.lock().unwrap();
    let error = run(&server.uri, &target.file(), None).await.unwrap_err();
    assert!(matches!(error, FetchError::Busy { .. }), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_but_not_for_ever() {
    let server = Server::start(|number, _| match number {
        0 => Redirect::temporary("/elsewhere").into_response(),
        _ => whole(content(), ETAG),
    });
    let (server, target) = (server.await, Target::new());
    run(&server.uri, &target.file(), None).await.unwrap();
    target.assert_holds(&content());
    let (server, target) =
        (Server::start(|_, _| Redirect::temporary("/x").into_response()).await, Target::new());
    let error = run(&server.uri, &target.file(), None).await.unwrap_err().to_string();
    assert!(error.contains("redirects") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_compressed_answer_is_refused() {
    let answer = |_: usize, _: &HeaderMap| ([(header::CONTENT_ENCODING, "gzip")], "x").into_response();
    let (server, target) = (Server::start(answer).await, Target::new());
    let error = run(&server.uri, &target.file(), None).await.unwrap_err().to_string();
    assert!(error.contains("compresses"), "{error}");
}

#[tokio::test]
async fn a_folder_in_place_of_the_file_is_an_error() {
    let (server, target) = (Server::start(|_, _| whole(content(), ETAG)).await, Target::new());
    std::fs::create_dir(target.file()).unwrap();
    let error = run(&server.uri, &target.file(), None).await.unwrap_err();
    assert!(matches!(error, FetchError::File { .. }), "{error}");
}
