//! The admin listener over loopback, asked by hand and by the health check.

use super::*;
use crate::shutdown::Shutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const LIMIT: Duration = Duration::from_secs(5);
const BUILD: Build = Build { service: "gateway", version: "1.2.3", commit: Some("abc") };

#[tokio::test]
async fn every_page_answers_with_its_status_and_type() {
    let (tasks, health, address) = serve().await;
    health.register("postgres", None).fail("refused");
    assert!(get(address, "GET", "/livez").await.starts_with("HTTP/1.1 200 OK"));
    let ready = get(address, "GET", "/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.contains(r#""reason":"refused""#), "{ready}");
    let metrics = get(address, "GET", "/metrics").await;
    assert!(metrics.contains(r#"holdfast_build_info{service="gateway",version="1.2.3",commit="abc"} 1"#), "{metrics}");
    let version = get(address, "GET", "/version").await;
    assert!(version.ends_with(r#"{"service":"gateway","version":"1.2.3","commit":"abc"}"#), "{version}");
    assert!(get(address, "GET", "/secrets").await.starts_with("HTTP/1.1 404 "));
    assert!(get(address, "POST", "/readyz").await.starts_with("HTTP/1.1 405 "));
    tasks.shutdown().ask();
    assert!(tasks.finish(LIMIT).await.is_ok());
}

#[tokio::test]
async fn healthcheck_follows_readiness_and_sees_the_drain() {
    let (tasks, health, address) = serve().await;
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
    assert!(healthcheck(any, LIMIT).await.is_ok());
    let check = health.register("nats", None);
    check.fail("no responders");
    let refused = healthcheck(address, LIMIT).await.unwrap_err();
    assert!(matches!(&refused, Error::NotReady { report, .. } if report.contains("no responders")), "{refused}");
    assert_eq!(refused.exit(), Exit::Unavailable);
    check.ok();
    assert!(healthcheck(address, LIMIT).await.is_ok());
    tasks.shutdown().ask();
    let draining = healthcheck(address, LIMIT).await.unwrap_err();
    assert!(matches!(draining, Error::NotReady { report, .. } if report.contains(r#""draining":true"#)));
}

#[tokio::test]
async fn silent_and_absent_processes_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = healthcheck(address, Duration::from_millis(50)).await;
    assert!(matches!(silent, Err(Error::Timeout { .. })));
    drop(listener);
    assert!(matches!(healthcheck(address, LIMIT).await, Err(Error::Connect { .. })));
}

#[tokio::test]
async fn taken_port_stops_the_start_and_names_the_address() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tasks = Tasks::new(Shutdown::new());
    let refused = Admin::bind(taken.local_addr().unwrap(), mk_shown(&tasks).0).await.unwrap_err();
    assert!(matches!(&refused, Error::Listen { .. }), "{refused}");
    assert_eq!(refused.exit(), Exit::Config);
}

async fn serve() -> (Tasks, Health, SocketAddr) {
    let tasks = Tasks::new(Shutdown::new());
    let (shown, health) = mk_shown(&tasks);
    let admin = Admin::bind("127.0.0.1:0".parse().unwrap(), shown).await.unwrap();
    let address = admin.address();
    admin.serve(&tasks);
    (tasks, health, address)
}

fn mk_shown(tasks: &Tasks) -> (Shown, Health) {
    let health = Health::new(tasks.shutdown().clone());
    // One recorder per process: tests that share one (`cargo test`) share it here.
    static METRICS: std::sync::OnceLock<Metrics> = std::sync::OnceLock::new();
    let metrics = METRICS.get_or_init(|| Metrics::install(BUILD, tasks).unwrap()).clone();
    (Shown { build: BUILD, health: health.clone(), metrics }, health)
}

async fn get(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}
