use std::time::Duration;

/// Bounds of what the gateway accepts and waits for.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open client connections; further ones wait in the listen queue.
    pub max_connections: usize,
    /// Requests in work at once; further ones get a 503.
    pub max_requests: usize,
    /// Bytes of one request body.
    pub max_body: usize,
    /// Bytes of all request bodies held at once.
    pub max_body_total: usize,
    /// Headers of one request, in number.
    pub max_headers: usize,
    /// Until the head of a request has come.
    pub header_timeout: Duration,
    /// Until the body of a request has come.
    pub body_timeout: Duration,
    /// Until a connection to a pod is open.
    pub connect_timeout: Duration,
    /// From the request to the head of its response, over all attempts.
    pub response_timeout: Duration,
    /// Between two parts of a response.
    pub idle_timeout: Duration,
    /// That a client may leave an answer unread.
    pub write_timeout: Duration,
    /// Attempts of one request, the first included.
    pub max_attempts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_requests: 8_192,
            // As much as Regatta's engine takes.
            max_body: 16 << 20,
            max_body_total: 256 << 20,
            max_headers: 128,
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(300),
            write_timeout: Duration::from_secs(300),
            max_attempts: 3,
        }
    }
}
