//! Doors on loopback, opened, used and closed.

use super::*;
use axum::Extension;
use axum::routing::get;
use holdfast_identity::https::{Client, Error, Request as Ask};
use holdfast_identity::{Ca, ServerRole, client_role_of, tls};
use holdfast_model::ids::AuthorityId;
use hyper::Method;
use rustls_pki_types::ServerName;
use time::OffsetDateTime;
use tokio::sync::Notify;
use uuid::Uuid;

#[tokio::test]
async fn request_under_way_finishes_when_the_door_closes_and_a_new_one_finds_nobody() {
    let at = Bench::new().await;
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let router = Router::new().route(
        "/slow",
        get({
            let (entered, release) = (Arc::clone(&entered), Arc::clone(&release));
            async move || {
                entered.notify_one();
                release.notified().await;
                "done"
            }
        }),
    );
    let (url, shutdown) = (at.url("/slow"), CancellationToken::new());
    let client = Client::new(tls::https(&at.ca.roots().unwrap()).unwrap());
    let door = serve_https(at.listener, at.open, router, DoorLimits::default(), shutdown.clone());
    let closing = async {
        entered.notified().await;
        shutdown.cancel();
        // The listener is closed before the drain begins: wait for that, not for a while.
        while !matches!(client.request(Ask::new(Method::GET, url.as_str())).await, Err(Error::Connect { .. })) {
            tokio::task::yield_now().await;
        }
        release.notify_one();
    };
    let (response, (), ()) = tokio::join!(client.request(Ask::new(Method::GET, url.as_str())), door, closing);
    assert_eq!(response.unwrap().body, "done");
}

#[tokio::test]
async fn handler_learns_the_certificate_of_its_peer_and_a_stranger_gets_nowhere() {
    let at = Bench::new().await;
    let router = Router::new().route(
        "/who",
        get(async |Extension(peer): Extension<Peer>| client_role_of(&peer.certificate.unwrap()).unwrap()),
    );
    let (url, shutdown) = (at.url("/who"), CancellationToken::new());
    let roots = at.ca.roots().unwrap();
    let user = at.ca.issue_client("auditor", OffsetDateTime::now_utc()).unwrap();
    let door = serve_https(at.listener, at.mutual, router, DoorLimits::default(), shutdown.clone());
    let asking = async {
        let known = Client::new(tls::mutual(&user, &roots).unwrap());
        let response = known.request(Ask::new(Method::GET, url.as_str())).await.unwrap();
        assert_eq!(response.body, "auditor");
        let stranger = Client::new(tls::https(&roots).unwrap());
        assert!(stranger.request(Ask::new(Method::GET, url.as_str())).await.is_err());
        shutdown.cancel();
    };
    tokio::join!(door, asking);
}

#[tokio::test]
async fn panic_of_one_handler_leaves_the_door_open() {
    let at = Bench::new().await;
    let router = Router::new()
        .route("/panics", get(async || if true { panic!("out of order") } else { "" }))
        .route("/lives", get(async || "yes"));
    let (panics, lives, shutdown) = (at.url("/panics"), at.url("/lives"), CancellationToken::new());
    let client = Client::new(tls::https(&at.ca.roots().unwrap()).unwrap());
    let door = serve_https(at.listener, at.open, router, DoorLimits::default(), shutdown.clone());
    let asking = async {
        assert!(matches!(client.request(Ask::new(Method::GET, panics)).await, Err(Error::Exchange { .. })));
        assert_eq!(client.request(Ask::new(Method::GET, lives)).await.unwrap().body, "yes");
        shutdown.cancel();
    };
    tokio::join!(door, asking);
}

struct Bench {
    ca: Ca,
    listener: TcpListener,
    open: Arc<ServerTls>,
    mutual: Arc<ServerTls>,
}

impl Bench {
    async fn new() -> Self {
        let now = OffsetDateTime::now_utc();
        let ca = Ca::create(AuthorityId::new(Uuid::from_u128(1)), now).unwrap();
        let names = [ServerName::try_from("localhost").unwrap()];
        let credential = ca.issue_server(ServerRole::Audit, &names, now).unwrap();
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            open: Arc::new(ServerTls::new(tls::https_door(&credential).unwrap())),
            mutual: Arc::new(ServerTls::new(tls::mutual_door(&credential, &ca.roots().unwrap()).unwrap())),
            ca,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.listener.local_addr().unwrap().port())
    }
}
