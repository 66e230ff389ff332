//! What a test may expect of the nodes around it: pods run and are reached, names resolve, drains evict.
//!
//! Runs inside `regatta-cluster run --size node --nodes 2`.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use regatta_e2e::{PAUSE, TestNamespace, wait_for};

const DEADLINE: Duration = Duration::from_secs(60);
const TRY: Duration = Duration::from_secs(2);
const DNS: &str = "10.96.0.10:53";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_on_each_node_is_reached_under_its_own_address() {
    let namespace = TestNamespace::create("pods").await.unwrap();
    let nodes = Api::<Node>::all(namespace.client.clone()).list(&ListParams::default()).await.unwrap();
    assert!(nodes.items.len() >= 2, "this test runs inside: regatta-cluster run --size node --nodes 2");
    for node in nodes {
        let node = node.name_any();
        namespace.apply(&web_pod(&node, &node)).await.unwrap();
        let address = ready_pod_address(&namespace, &node).await;
        let answer = wait_for("an answer", DEADLINE, async || get(address, 8080)).await;
        assert!(answer.ends_with(&format!("{node}\n")), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_service_leads_to_its_pods_on_another_node() {
    let namespace = TestNamespace::create("names").await.unwrap();
    namespace.apply(&web_pod("web", "node-2")).await.unwrap();
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
                   spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n";
    namespace.apply(service).await.unwrap();
    ready_pod_address(&namespace, "web").await;

    let name = format!("web.{}.svc.cluster.local", namespace.name);
    let resolved = wait_for("the name to resolve", DEADLINE, async || resolve(&name)).await;
    let service = namespace.api::<Service>().get("web").await.unwrap();
    assert_eq!(service.spec.unwrap().cluster_ip.unwrap(), resolved.to_string());
    let answer = wait_for("an answer of the Service", DEADLINE, async || get(resolved, 80)).await;
    assert!(answer.ends_with("web\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_evicts_the_pods_of_one_node_and_no_others() {
    let namespace = TestNamespace::create("drain").await.unwrap();
    for node in ["node-1", "node-2"] {
        namespace.apply(&web_pod(node, node)).await.unwrap();
        ready_pod_address(&namespace, node).await;
    }
    // Other tests have pods on the node, which are not to be evicted.
    let selector = format!("--pod-selector=test={}", namespace.name);
    let label = format!("test={}", namespace.name);
    kubectl(&["label", "pods", "--all", &label, "-n", &namespace.name]);
    kubectl(&["drain", "node-2", "--force", &selector, "--timeout=60s"]);
    kubectl(&["uncordon", "node-2"]);

    let left = namespace.api::<Pod>().list(&ListParams::default()).await.unwrap();
    let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["node-1"]);
}

/// A pod that answers HTTP requests with its own name.
fn web_pod(name: &str, node: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: {PAUSE}
    imagePullPolicy: IfNotPresent
    args: [\":8080\"]
    readinessProbe: {{httpGet: {{path: /, port: 8080}}, periodSeconds: 1}}
"
    )
}

async fn ready_pod_address(namespace: &TestNamespace, name: &str) -> IpAddr {
    let pods = namespace.api::<Pod>();
    wait_for(&format!("pod {name} to be Ready"), DEADLINE, async || {
        let pod = pods.get(name).await.map_err(|error| error.to_string())?;
        let status = pod.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().flatten().any(|is| is.type_ == "Ready" && is.status == "True");
        match status.pod_ip {
            Some(address) if ready => Ok(address.parse().expect("a pod's address is one")),
            _ => Err(format!("{status:#?}")),
        }
    })
    .await
}

fn get(address: IpAddr, port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), TRY)?;
    stream.set_read_timeout(Some(TRY))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Asks the cluster's DNS for an IPv4 address (RFC 1035: header, question; the answer's last four bytes are it).
fn resolve(name: &str) -> Result<IpAddr, String> {
    let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).expect("a label has at most 63 bytes"));
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    let exchange = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(TRY))?;
        socket.send_to(&query, DNS)?;
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer)?;
        std::io::Result::Ok(answer[..length].to_vec())
    };
    let answer = exchange().map_err(|error| error.to_string())?;
    let num_answers = answer[7];
    if num_answers != 1 {
        return Err(format!("{num_answers} answers, code {}", answer[3] & 15));
    }
    let last: [u8; 4] = answer[answer.len() - 4..].try_into().expect("four bytes");
    Ok(IpAddr::from(last))
}

fn kubectl(arguments: &[&str]) {
    let output = Command::new("kubectl").args(arguments).output().unwrap();
    assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
