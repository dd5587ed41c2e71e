//! A small HTTPS client: one request, one connection, one time limit.
//!
//! - HTTP/1.1 over TLS with the configuration that it is given; plain HTTP is refused, redirects are not followed.
//! - What a server sends back is bounded in bytes and in time before it is kept.
//! - No task is started: the connection lives in the future of its request, and ends with it.
//!
//! It knows nothing of our API: problems, retries and cursors are its callers'.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, Connection};
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::{CertificateDer, ServerName};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a request may take as a whole, unless it says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// How many bytes a response may have, unless its request says otherwise.
pub const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not `https://host[:port]/path`.
    #[error("`{url}` is no https URL")]
    Url {
        /// The offending text, cut to 256 characters.
        url: String,
    },
    /// A header's value cannot be sent.
    #[error("the value of header `{name}` cannot be sent")]
    Header {
        /// The header.
        name: HeaderName,
    },
    /// Nobody answers there.
    #[error("cannot connect to {authority}")]
    Connect {
        /// Host and port.
        authority: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The server is not the one that was wanted, or refuses us.
    #[error("cannot agree on TLS with {authority}")]
    Tls {
        /// Host and port.
        authority: String,
        /// What rustls said.
        #[source]
        source: io::Error,
    },
    /// Something took the connection and ended it before TLS came about: as a forwarder does with nobody behind it.
    #[error("{authority} takes the connection and hangs up")]
    HungUp {
        /// Host and port.
        authority: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The connection broke, or carried no HTTP.
    #[error("the exchange with {authority} broke")]
    Exchange {
        /// Host and port.
        authority: String,
        /// What hyper said.
        #[source]
        source: hyper::Error,
    },
    /// The answer did not come in time.
    #[error("{authority} did not answer within {} ms", limit.as_millis())]
    Timeout {
        /// Host and port.
        authority: String,
        /// The limit.
        limit: Duration,
    },
    /// The answer is larger than was asked for.
    #[error("the answer of {authority} has more than {bytes_max} bytes")]
    TooLarge {
        /// Host and port.
        authority: String,
        /// The limit.
        bytes_max: usize,
    },
}

impl Error {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Url { .. } => "url",
            Self::Header { .. } => "header",
            Self::Connect { .. } => "unreachable",
            Self::Tls { .. } => "tls-refused",
            Self::HungUp { .. } => "hung-up",
            Self::Exchange { .. } => "exchange-broken",
            Self::Timeout { .. } => "timeout",
            Self::TooLarge { .. } => "answer-too-large",
        }
    }
}

/// What is asked.
#[derive(Clone)]
pub struct Request {
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Bytes,
    timeout: Duration,
    response_bytes_max: usize,
}

impl Request {
    /// A request without a body.
    #[must_use]
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: TIMEOUT,
            response_bytes_max: RESPONSE_BYTES_MAX,
        }
    }

    /// Sets a header.
    ///
    /// # Errors
    /// [`Error::Header`] when the value holds what a header cannot.
    pub fn header(mut self, name: HeaderName, value: &str) -> Result<Self, Error> {
        let Ok(value) = HeaderValue::from_str(value) else { return Err(Error::Header { name }) };
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends a bearer token; the header never shows in `Debug`.
    ///
    /// # Errors
    /// [`Error::Header`] when the token is none.
    pub fn bearer(mut self, token: &str) -> Result<Self, Error> {
        let name = hyper::header::AUTHORIZATION;
        let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {token}")) else {
            return Err(Error::Header { name });
        };
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends a body; its length is told, its type is a header.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Gives the whole exchange another time limit ([`Client::open`]: until the response's head).
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Takes a response of up to this many bytes.
    #[must_use]
    pub const fn response_bytes_max(mut self, bytes: usize) -> Self {
        self.response_bytes_max = bytes;
        self
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("url", &self.url)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// What came back, whatever its status.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// The certificates that the server presented, leaf first.
    pub peer_certificates: Vec<CertificateDer<'static>>,
}

/// A response whose body is still coming (server-sent events, a followed log).
pub struct Streaming {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    authority: String,
    exchange: Exchange,
    body: Incoming,
    peer_certificates: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").field("status", &self.status).field("from", &self.authority).finish_non_exhaustive()
    }
}

impl Streaming {
    /// Waits for the next piece; `None` when the server ended its body. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`Error::Exchange`] when the connection breaks before its end.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        let Self { exchange, body, authority, .. } = self;
        loop {
            let frame = poll_fn(|cx| {
                exchange.poll(cx);
                Pin::new(&mut *body).poll_frame(cx)
            });
            match frame.await {
                None => return Ok(None),
                Some(Err(source)) => return Err(Error::Exchange { authority: authority.clone(), source }),
                // Trailers carry nothing of ours.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Keeps the rest of the body, up to a size.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond it, [`Error::Exchange`] when the connection breaks.
    pub async fn collect(mut self, bytes_max: usize) -> Result<Response, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = self.next_chunk().await? {
            if chunk.len() > bytes_max - body.len() {
                return Err(Error::TooLarge { authority: self.authority, bytes_max });
            }
            body.extend_from_slice(&chunk);
        }
        let Self { status, headers, peer_certificates, .. } = self;
        Ok(Response { status, headers, body: body.into(), peer_certificates })
    }

    /// The same, however long it takes as a whole, as long as something comes within each pause.
    ///
    /// # Errors
    /// As [`Self::collect`]; [`Error::Timeout`] when nothing comes.
    pub async fn collect_paced(mut self, bytes_max: usize, pause_max: Duration) -> Result<Response, Error> {
        let mut body = Vec::new();
        loop {
            let chunk = tokio::time::timeout(pause_max, self.next_chunk()).await;
            let authority = || self.authority.clone();
            let chunk = chunk.map_err(|_elapsed| Error::Timeout { authority: authority(), limit: pause_max })??;
            let Some(chunk) = chunk else { break };
            if chunk.len() > bytes_max - body.len() {
                return Err(Error::TooLarge { authority: authority(), bytes_max });
            }
            body.extend_from_slice(&chunk);
        }
        let Self { status, headers, peer_certificates, .. } = self;
        Ok(Response { status, headers, body: body.into(), peer_certificates })
    }
}

/// The client: a TLS configuration and nothing kept between requests.
#[derive(Clone)]
pub struct Client {
    connector: TlsConnector,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// Verifies servers, and proves itself to them, as `config` says (see [`crate::tls::client`]).
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self { connector: TlsConnector::from(Arc::new(config)) }
    }

    /// Performs a request and keeps the whole response.
    ///
    /// # Errors
    /// [`Error`]; a response of any status is no error.
    pub async fn request(&self, request: Request) -> Result<Response, Error> {
        let target = Target::parse(&request.url)?;
        let (limit, bytes_max) = (request.timeout, request.response_bytes_max);
        let whole = async { self.exchange(&target, request).await?.collect(bytes_max).await };
        within(limit, &target, whole).await
    }

    /// Performs a request and returns as soon as the response's head is there.
    ///
    /// # Errors
    /// [`Error`]; a response of any status is no error.
    pub async fn open(&self, request: Request) -> Result<Streaming, Error> {
        let target = Target::parse(&request.url)?;
        within(request.timeout, &target, self.exchange(&target, request)).await
    }

    async fn exchange(&self, target: &Target, request: Request) -> Result<Streaming, Error> {
        let authority = target.authority.clone();
        let stream = TcpStream::connect((target.host.as_str(), target.port))
            .await
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|source| Error::Connect { authority: authority.clone(), source })?;
        let stream = self
            .connector
            .connect(target.name.clone(), stream)
            .await
            .map_err(|source| not_agreed(authority.clone(), source))?;
        let peer_certificates =
            stream.get_ref().1.peer_certificates().unwrap_or_default().iter().map(|c| c.clone().into_owned()).collect();
        let broke = |source| Error::Exchange { authority: authority.clone(), source };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
        let mut exchange = Exchange { connection: Some(Box::pin(connection)) };
        let mut sent = hyper::Request::new(Full::new(request.body));
        *sent.method_mut() = request.method;
        *sent.uri_mut() = target.path.clone();
        *sent.headers_mut() = request.headers;
        sent.headers_mut().insert(HOST, target.host_header.clone());
        let (head, body) = exchange.drive(sender.send_request(sent)).await.map_err(broke)?.into_parts();
        Ok(Streaming { status: head.status, headers: head.headers, authority, exchange, body, peer_certificates })
    }
}

/// What a handshake that failed means: a peer that refuses says so in TLS before it closes.
fn not_agreed(authority: String, source: io::Error) -> Error {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    if matches!(source.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof) {
        Error::HungUp { authority, source }
    } else {
        Error::Tls { authority, source }
    }
}

async fn within<T>(limit: Duration, target: &Target, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_elapsed) => Err(Error::Timeout { authority: target.authority.clone(), limit }),
    }
}

type HttpsConnection = Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// The connection's half of an exchange, polled by whoever waits for the other half.
struct Exchange {
    connection: Option<Pin<Box<HttpsConnection>>>,
}

impl Exchange {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            // How it ended reaches the waiting half too: as the end of the body, or as its error.
            self.connection = None;
        }
    }

    async fn drive<T>(&mut self, wanted: impl Future<Output = T>) -> T {
        let mut wanted = pin!(wanted);
        poll_fn(|cx| {
            self.poll(cx);
            Poll::Ready(ready!(wanted.as_mut().poll(cx)))
        })
        .await
    }
}

/// Where a request goes.
#[derive(Debug)]
struct Target {
    host: String,
    port: u16,
    authority: String,
    name: ServerName<'static>,
    host_header: HeaderValue,
    path: Uri,
}

impl Target {
    fn parse(url: &str) -> Result<Self, Error> {
        Self::read(url).ok_or_else(|| Error::Url { url: url.chars().take(256).collect() })
    }

    fn read(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority()?;
        if uri.scheme_str() != Some("https") || authority.as_str().contains('@') {
            return None;
        }
        let host = authority.host();
        // An IPv6 address is written in brackets, and connected to and verified without them.
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host).to_owned();
        let port = authority.port_u16().unwrap_or(443);
        Some(Self {
            authority: format!("{}:{port}", authority.host()),
            name: ServerName::try_from(host.clone()).ok()?,
            host_header: HeaderValue::from_str(authority.as_str()).ok()?,
            path: uri.path_and_query()?.as_str().parse().ok()?,
            host,
            port,
        })
    }
}

#[cfg(test)]
mod tests;
