//! The API as this command reaches it: address, trust and token, one request at a time.
//!
//! - The token comes from the environment or a file, never from an argument: arguments are everybody's to read.
//! - A change names itself, so that asking again does nothing twice: where it is not known whether one was done, it is asked for again.
//! - Trust is the CA's certificate that was given, nothing else: the system's own authorities do not count.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_api::object::Page;
use holdfast_api::problem::Problem;
use holdfast_identity::https::{Client, Request, Response, Streaming};
use holdfast_identity::{Token, TokenKind, TrustRoots, files, tls};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;

use crate::args::Connection;
use crate::error::Error;

/// How long one request may take, beyond what it asks the API to wait.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to see whether anybody answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a check of everything may take.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(900);
/// The pauses before a change of which it is not known whether it was done is asked for again: a gateway that is started again is back by then.
const RETRIES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];
/// The name that a change gives itself.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The largest answer: a page of documents, or one large address group.
const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The API.
pub(crate) struct Api {
    client: Client,
    base: String,
    token: Token,
    /// What the one change of this command is called.
    key: String,
}

impl Api {
    /// Reads the settings; nothing is sent yet.
    pub(crate) fn new(connection: &Connection) -> Result<Self, Error> {
        let missing = |what, variable, flag| Error::Missing { what, variable, flag };
        let base = connection.api.clone();
        let base = base.ok_or_else(|| missing("the API's address is not known", "HOLDFAST_API", "--api"))?;
        let ca = connection.ca.as_deref();
        let ca = ca.ok_or_else(|| missing("the CA's certificate is not known", "HOLDFAST_CA", "--ca"))?;
        let client = Client::new(tls::https(&TrustRoots::load(ca)?)?);
        let key = connection.idempotency_key.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        Ok(Self { client, base: base.trim_end_matches('/').to_owned(), token: token(connection)?, key })
    }

    /// Asks without a token, for what comes back whatever it is: certificates, the clock of the other side.
    pub(crate) async fn probe(client: &Client, base: &str) -> Result<Response, Error> {
        let url = format!("{}/openapi.json", base.trim_end_matches('/'));
        Ok(client.request(Request::new(Method::GET, url).timeout(PROBE_TIMEOUT)).await?)
    }

    fn request(&self, method: Method, path: &str) -> Result<Request, Error> {
        Ok(Request::new(method, format!("{}{path}", self.base))
            .bearer(self.token.reveal())?
            .timeout(REQUEST_TIMEOUT)
            .response_bytes_max(ANSWER_BYTES_MAX))
    }

    async fn send(&self, request: Request, path: &str) -> Result<Response, Error> {
        let response = self.client.request(request).await?;
        if response.status.is_success() {
            return Ok(response);
        }
        Err(refused(&response.body, response.status.as_u16(), &self.base, path))
    }

    /// Reads something.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.read(Method::GET, path, Duration::ZERO).await
    }

    /// Reads something that the API may wait for.
    pub(crate) async fn get_waiting<T: DeserializeOwned>(&self, path: &str, wait: Duration) -> Result<T, Error> {
        self.read(Method::GET, path, wait).await
    }

    async fn read<T: DeserializeOwned>(&self, method: Method, path: &str, wait: Duration) -> Result<T, Error> {
        let request = self.request(method, path)?.timeout(REQUEST_TIMEOUT + wait);
        let response = self.send(request, path).await?;
        self.understood(&response, path)
    }

    fn understood<T: DeserializeOwned>(&self, response: &Response, path: &str) -> Result<T, Error> {
        let foreign = |_| Error::Foreign { url: format!("{}{path}", self.base), status: response.status.as_u16() };
        serde_json::from_slice(&response.body).map_err(foreign)
    }

    /// Every page of a list.
    pub(crate) async fn get_all(&self, path: &str) -> Result<Page<Value>, Error> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let mut page: Page<Value> = self.get(&format!("{path}{mark}limit=500")).await?;
        while let Some(cursor) = page.next_cursor.take() {
            let next: Page<Value> = self.get(&format!("{path}{mark}limit=500&cursor={}", escape(&cursor))).await?;
            page.items.extend(next.items);
            page.next_cursor = next.next_cursor;
        }
        Ok(page)
    }

    /// Sends something that changes nothing, and reads the answer.
    pub(crate) async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        timeout: Option<Duration>,
    ) -> Result<T, Error> {
        let request = self.posting(path, serde_json::to_vec(body)?, timeout)?;
        let response = self.send(request, path).await?;
        self.understood(&response, path)
    }

    fn posting(&self, path: &str, body: Vec<u8>, timeout: Option<Duration>) -> Result<Request, Error> {
        let content_type: HeaderName = CONTENT_TYPE;
        let request = self.request(Method::POST, path)?.header(content_type, "application/json")?;
        Ok(request.timeout(timeout.unwrap_or(REQUEST_TIMEOUT)).body(body))
    }

    /// Asks for a change, and reads the answer.
    pub(crate) async fn change<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
        timeout: Option<Duration>,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(body)?;
        let response = self.surely(path, || self.posting(path, body.clone(), timeout)).await?;
        self.understood(&response, path)
    }

    /// Takes something away; the answer, if there is one.
    pub(crate) async fn delete(&self, path: &str) -> Result<Value, Error> {
        let response = self.surely(path, || self.request(Method::DELETE, path)).await?;
        if response.body.is_empty() { Ok(Value::Null) } else { self.understood(&response, path) }
    }

    /// Asks for a change until it is known what came of it, or for some time.
    async fn surely(&self, path: &str, request: impl Fn() -> Result<Request, Error>) -> Result<Response, Error> {
        let mut pauses = RETRIES.into_iter();
        loop {
            let named = request()?.header(IDEMPOTENCY_KEY, &self.key)?;
            match self.send(named, path).await {
                Err(error) if error.is_uncertain() => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(Error::NotKnown { key: self.key.clone(), source: Box::new(error) }),
                },
                // It is away now, but an earlier answer was lost: whether it was done is still not known.
                Err(error) if error.is_passing() && pauses.len() < RETRIES.len() => match pauses.next() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => return Err(Error::NotKnown { key: self.key.clone(), source: Box::new(error) }),
                },
                known => return known,
            }
        }
    }

    /// An answer that keeps coming.
    pub(crate) async fn open(&self, path: &str) -> Result<Streaming, Error> {
        let streaming = self.client.open(self.request(Method::GET, path)?).await?;
        if streaming.status.is_success() {
            return Ok(streaming);
        }
        let status = streaming.status.as_u16();
        let response = streaming.collect(ANSWER_BYTES_MAX).await?;
        Err(refused(&response.body, status, &self.base, path))
    }
}

fn refused(body: &[u8], status: u16, base: &str, path: &str) -> Error {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => Error::Refused(Box::new(problem)),
        Err(_) => Error::Foreign { url: format!("{base}{path}"), status },
    }
}

/// The token that is shown to the API.
pub(crate) fn token(connection: &Connection) -> Result<Token, Error> {
    if let Some(path) = &connection.token_file {
        let bytes = files::read_secret(path)?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        return parsed(text, path.display().to_string());
    }
    // Not an argument of the command line: every process of the machine could read it.
    match std::env::var("HOLDFAST_TOKEN") {
        Ok(text) => parsed(&text, "HOLDFAST_TOKEN".to_owned()),
        Err(_) => Err(Error::Missing {
            what: "there is no API token",
            variable: "HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE",
            flag: "--token-file",
        }),
    }
}

fn parsed(text: &str, origin: String) -> Result<Token, Error> {
    Token::parse(TokenKind::Api, text).map_err(|source| Error::Token { origin, source })
}

/// A text as one part of a path or a value of a query.
pub(crate) fn escape(text: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            escaped.push(char::from(byte));
        } else {
            // Writing into a string does not fail.
            let _written = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// The text of a file, or of stdin for `-`.
pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    let read = |source| Error::Read { path: path.to_owned(), source };
    if path == Path::new("-") {
        return std::io::read_to_string(std::io::stdin())
            .map_err(|source| Error::Read { path: PathBuf::from("stdin"), source });
    }
    std::fs::read_to_string(path).map_err(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_into_a_path_cannot_leave_its_part() {
        assert_eq!(escape("default/web-1"), "default%2Fweb-1");
        assert_eq!(escape("a b&c=d?#ä"), "a%20b%26c%3Dd%3F%23%C3%A4");
    }
}
