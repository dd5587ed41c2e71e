//! The client against a real HTTPS server on loopback.

use super::*;
use crate::ca::Ca;
use crate::credential::TrustRoots;
use crate::name::ServerRole;
use crate::tls::{self, ServerTls};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::service::service_fn;
use std::convert::Infallible;
use time::OffsetDateTime;
use tokio::net::TcpListener;
use uuid::Uuid;

#[tokio::test]
async fn request_carries_body_and_headers_and_brings_back_status_body_and_certificates() {
    let at = Door::open().await;
    let request = Request::new(Method::POST, at.url("/echo?x=1")).body("hello").bearer("hfa_x").unwrap();
    let serve = at.serve(|request| async move {
        let described = format!(
            "{} {} {:?} {:?}",
            request.method(),
            request.uri(),
            request.headers().get(hyper::header::AUTHORIZATION).unwrap().to_str(),
            request.headers().get(HOST).unwrap().to_str(),
        );
        let body = request.into_body().collect().await.unwrap().to_bytes();
        mk_response(409, format!("{described} {body:?}"))
    });
    let client = at.client();
    let (response, ()) = tokio::join!(client.request(request), serve);
    let response = response.unwrap();
    assert_eq!(response.status, StatusCode::CONFLICT);
    let expected = format!("POST /echo?x=1 Ok(\"Bearer hfa_x\") Ok(\"localhost:{}\") b\"hello\"", at.port());
    assert_eq!(response.body, expected);
    assert_eq!(response.peer_certificates.len(), 2);
}

#[tokio::test]
async fn answer_over_its_limit_is_refused() {
    let at = Door::open().await;
    let request = Request::new(Method::GET, at.url("/")).response_bytes_max(9);
    let serve = at.serve(|_| async { mk_response(200, "ten bytes!".to_owned()) });
    let client = at.client();
    let (response, ()) = tokio::join!(client.request(request), serve);
    assert!(matches!(response, Err(Error::TooLarge { bytes_max: 9, .. })));
}

#[tokio::test]
async fn silent_server_is_given_up_on_in_time() {
    let at = Door::open().await;
    let request = Request::new(Method::GET, at.url("/")).timeout(Duration::from_millis(50));
    // Accepted by the kernel, answered by nobody.
    let response = at.client().request(request).await;
    assert!(matches!(response, Err(Error::Timeout { .. })));
}

#[tokio::test]
async fn stream_is_read_piece_by_piece_while_it_is_written() {
    let at = Door::open().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<&'static str>(1);
    let serve = at.serve_pieces(receiver);
    let read = async {
        let mut stream = at.client().open(Request::new(Method::GET, at.url("/watch"))).await.unwrap();
        for piece in ["one", "two"] {
            sender.send(piece).await.unwrap();
            assert_eq!(stream.next_chunk().await.unwrap().unwrap(), piece);
        }
        drop(sender);
        assert_eq!(stream.next_chunk().await.unwrap(), None);
    };
    tokio::join!(read, serve);
}

#[tokio::test]
async fn a_paced_answer_may_take_longer_than_its_pause_as_long_as_something_comes() {
    let at = Door::open().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<&'static str>(1);
    let serve = at.serve_pieces(receiver);
    let pause_max = Duration::from_secs(1);
    let ask = async |bytes_max| {
        let stream = at.client().open(Request::new(Method::GET, at.url("/"))).await.unwrap();
        stream.collect_paced(bytes_max, pause_max).await
    };
    let say = async {
        for _ in 0..10 {
            tokio::time::sleep(pause_max / 6).await;
            sender.send("piece").await.unwrap();
        }
        // And then nothing, without an end.
        std::future::pending::<()>().await;
    };
    let began = std::time::Instant::now();
    let read = async {
        tokio::select! {
            answer = ask(100) => answer,
            () = say => unreachable!("it never ends"),
        }
    };
    let answer = tokio::select! {
        answer = read => answer,
        () = serve => panic!("the door closed"),
    };
    assert!(matches!(answer, Err(Error::Timeout { limit, .. }) if limit == pause_max), "{answer:?}");
    assert!(began.elapsed() >= pause_max * 2, "it was read while it came: {:?}", began.elapsed());
}

#[tokio::test]
async fn server_of_another_ca_is_refused_with_the_cause_in_the_chain() {
    let (at, other) = (Door::open().await, Door::open().await);
    let client = Client::new(tls::https(&other.roots).unwrap());
    let (response, ()) = tokio::join!(client.request(Request::new(Method::GET, at.url("/"))), at.accept_and_drop());
    assert!(matches!(response, Err(Error::Tls { .. })));
}

#[tokio::test]
async fn who_takes_the_connection_and_hangs_up_is_told_apart_from_a_server_of_another_ca() {
    let at = Door::open().await;
    let hangs_up = async { drop(at.listener.accept().await.unwrap()) };
    let client = at.client();
    let (response, ()) = tokio::join!(client.request(Request::new(Method::GET, at.url("/"))), hangs_up);
    assert!(matches!(response, Err(Error::HungUp { .. })), "{response:?}");
}

#[tokio::test]
async fn nobody_listening_is_told_apart_from_a_broken_answer() {
    let at = Door::open().await;
    let (url, client) = (at.url("/"), at.client());
    drop(at);
    assert!(matches!(client.request(Request::new(Method::GET, url)).await, Err(Error::Connect { .. })));
}

#[test]
fn only_https_urls_are_targets() {
    for url in ["http://a/", "https://", "https:///x", "a", "https://u:p@a/", "https://a b/", "ftp://a/", "/x"] {
        assert!(matches!(Target::parse(url), Err(Error::Url { .. })), "{url}");
    }
    let target = Target::parse("https://[::1]:7080/v1/x?y").unwrap();
    assert_eq!((target.host.as_str(), target.port, target.path.to_string().as_str()), ("::1", 7080, "/v1/x?y"));
    assert_eq!(target.authority, "[::1]:7080");
    let target = Target::parse("https://gateway.example").unwrap();
    assert_eq!((target.port, target.path.to_string().as_str()), (443, "/"));
}

#[test]
fn token_does_not_show_in_debug() {
    let request = Request::new(Method::GET, "https://a/").bearer("hfa_secret").unwrap();
    assert!(!format!("{request:?}").contains("hfa_secret"));
}

type AnyBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

struct Pieces(tokio::sync::OwnedMutexGuard<tokio::sync::mpsc::Receiver<&'static str>>);

impl futures_util::Stream for Pieces {
    type Item = Result<Frame<Bytes>, Infallible>;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|text| Ok(Frame::data(Bytes::from_static(text.as_bytes())))))
    }
}

struct Door {
    listener: TcpListener,
    tls: ServerTls,
    roots: TrustRoots,
}

impl Door {
    async fn open() -> Self {
        let now = OffsetDateTime::now_utc();
        let ca = Ca::create(holdfast_model::ids::AuthorityId::new(Uuid::from_u128(1)), now).unwrap();
        let names = [ServerName::try_from("localhost").unwrap()];
        let credential = ca.issue_server(ServerRole::GatewayOperators, &names, now).unwrap();
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            tls: ServerTls::new(tls::https_door(&credential).unwrap()),
            roots: ca.roots().unwrap(),
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port())
    }

    fn client(&self) -> Client {
        Client::new(tls::https(&self.roots).unwrap())
    }

    async fn accept_and_drop(&self) {
        let (stream, _) = self.listener.accept().await.unwrap();
        assert!(self.tls.accept(stream).await.is_err());
    }

    /// Serves one connection, whose answers come in pieces as they are said.
    async fn serve_pieces(&self, pieces: tokio::sync::mpsc::Receiver<&'static str>) {
        let pieces = Arc::new(tokio::sync::Mutex::new(pieces));
        self.serve(move |_| {
            let pieces = Arc::clone(&pieces);
            async move { hyper::Response::new(StreamBody::new(Pieces(pieces.lock_owned().await)).boxed()) }
        })
        .await;
    }

    /// Serves one connection; the client's going away is its end.
    async fn serve<F>(&self, answer: impl Fn(hyper::Request<Incoming>) -> F)
    where
        F: Future<Output = hyper::Response<AnyBody>>,
    {
        let (stream, _) = self.listener.accept().await.unwrap();
        let stream = self.tls.accept(stream).await.unwrap();
        let service = service_fn(|request| {
            let answer = answer(request);
            async { Ok::<_, Infallible>(answer.await) }
        });
        let _gone = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

fn mk_response(status: u16, body: String) -> hyper::Response<AnyBody> {
    let mut response = hyper::Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}
