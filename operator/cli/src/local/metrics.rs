//! The metrics of the gateway and of all engines of a run on one page, in OpenMetrics text: engines listen on ports
//! that change with each start.

use std::{convert::Infallible, fmt::Write, future::pending, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::State, routing::get};
use futures::future::join_all;
use regatta_gateway::Gateway;
use reqwest::{
    Client,
    header::{ACCEPT, CONTENT_TYPE},
};
use tokio::net::TcpListener;

use super::fleet::Fleet;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// An engine answers from memory.
const DEADLINE: Duration = Duration::from_secs(5);
/// Largest page of one engine, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// Whether an engine answered.
const UP: &str = "regatta_local_engine_up";

#[derive(Clone)]
struct Sources {
    gateway: Gateway,
    fleet: Arc<Fleet>,
    client: Client,
}

/// Answers `/metrics` on `listener`, if there is one; ends only when dropped.
pub(crate) async fn serve(listener: Option<TcpListener>, gateway: Gateway, fleet: Arc<Fleet>) -> Infallible {
    if let Some(listener) = listener {
        let client = Client::builder().no_proxy().timeout(DEADLINE).build().expect("a plain client");
        let page =
            async |State(sources): State<Sources>| ([(CONTENT_TYPE, OPENMETRICS)], sources.page().await);
        let router =
            Router::new().route("/metrics", get(page)).with_state(Sources { gateway, fleet, client });
        if let Err(error) = axum::serve(listener, router).await {
            say!("metrics are served no more: {error}");
        }
    }
    pending().await
}

impl Sources {
    async fn page(&self) -> String {
        let engines = self.fleet.addresses();
        let texts = join_all(engines.iter().map(async |(_, address)| self.fetch((*address)?).await)).await;
        let mut page = Page::default();
        page.add(&self.gateway.metrics(), None);
        let mut up =
            format!("# TYPE {UP} gauge\n# HELP {UP} Whether the engine answered with its metrics.\n");
        for ((name, _), text) in engines.iter().zip(texts) {
            let _ = writeln!(up, "{UP}{{replica=\"{name}\"}} {}", u8::from(text.is_some()));
            page.add(&text.unwrap_or_default(), Some(name));
        }
        page.add(&up, None);
        page.text()
    }

    /// None from an engine that does not answer well.
    async fn fetch(&self, address: SocketAddr) -> Option<String> {
        let request = self.client.get(format!("http://{address}/metrics")).header(ACCEPT, OPENMETRICS);
        let mut response = request.send().await.and_then(reqwest::Response::error_for_status).ok()?;
        let mut text = Vec::new();
        while let Some(chunk) = response.chunk().await.ok()? {
            if text.len() + chunk.len() > MAX_BYTES {
                return None;
            }
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).ok()
    }
}

/// Families of several sources; the samples of a family must stand together.
#[derive(Default)]
struct Page(Vec<Family>);

struct Family {
    name: String,
    /// Lines that describe it, of the first source that has it.
    head: String,
    samples: String,
}

impl Page {
    /// Adds what one source says; its samples are told apart by `replica`.
    fn add(&mut self, text: &str, replica: Option<&str>) {
        let known = self.0.len();
        let mut current = None;
        for line in text.lines().filter(|line| !line.is_empty() && *line != "# EOF") {
            if let Some(description) = line.strip_prefix("# ") {
                let Some(name) = description.split(' ').nth(1) else { continue };
                let index = self.family(name);
                current = Some(index);
                if index >= known {
                    self.0[index].head.push_str(line);
                    self.0[index].head.push('\n');
                }
            } else if let Some(index) = current {
                self.0[index].samples.push_str(&labelled(line, replica));
                self.0[index].samples.push('\n');
            }
        }
    }

    fn family(&mut self, name: &str) -> usize {
        if let Some(index) = self.0.iter().position(|family| family.name == name) {
            return index;
        }
        self.0.push(Family { name: name.to_owned(), head: String::new(), samples: String::new() });
        self.0.len() - 1
    }

    fn text(&self) -> String {
        let families = self.0.iter().flat_map(|family| [family.head.as_str(), family.samples.as_str()]);
        families.chain(["# EOF\n"]).collect()
    }
}

/// A sample with one label more.
fn labelled(line: &str, replica: Option<&str>) -> String {
    let Some(replica) = replica else { return line.to_owned() };
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    match rest.strip_prefix('{') {
        Some(rest) if rest.starts_with('}') => format!("{name}{{replica=\"{replica}\"{rest}"),
        Some(rest) => format!("{name}{{replica=\"{replica}\",{rest}"),
        None => format!("{name}{{replica=\"{replica}\"}}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_all_engines_are_merged_and_their_samples_told_apart() {
        let engine = |n: u32| {
            format!(
                "# HELP a Something.\n# TYPE a counter\na_total{{model=\"x y\"}} {n}\n\
                 # TYPE b gauge\nb {n}\nc_is_no_family_of_its_own{{}} {n}\n# EOF\n"
            )
        };
        let mut page = Page::default();
        page.add("# TYPE g gauge\ng 7\n# EOF\n", None);
        page.add(&engine(1), Some("m-0"));
        page.add(&engine(2), Some("m-1"));
        let expected = "# TYPE g gauge\ng 7\n\
            # HELP a Something.\n# TYPE a counter\n\
            a_total{replica=\"m-0\",model=\"x y\"} 1\na_total{replica=\"m-1\",model=\"x y\"} 2\n\
            # TYPE b gauge\n\
            b{replica=\"m-0\"} 1\nc_is_no_family_of_its_own{replica=\"m-0\"} 1\n\
            b{replica=\"m-1\"} 2\nc_is_no_family_of_its_own{replica=\"m-1\"} 2\n# EOF\n";
        assert_eq!(page.text(), expected);
    }
}
