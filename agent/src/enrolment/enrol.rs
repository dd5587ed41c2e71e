//! Enrolling: one call to a gateway, with the token, over a connection whose CA is the pinned one.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{self, Client, Request, Response};
use holdfast_identity::tls::{self, enrolment};
use holdfast_identity::{
    CaPin, LeafKey, SigningKey, Token, TokenKind, VerifyingKey, credential, files, pin, signing, token,
};
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;
use holdfast_session::backoff::Backoff;
use holdfast_wire::enrol::{ENROL_PATH, EnrolRequest, EnrolResponse, Problem, TokenText};
use hyper::Method;
use hyper::header::CONTENT_TYPE;
use time::OffsetDateTime;

use super::{Error, Told, is_enrolled, save};
use crate::session::{inventory, random};

/// The renderer issues the certificate meanwhile; the gateway itself gives up earlier.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);
/// How long a gateway that is not there yet, or too busy, is asked again.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to enrol with.
#[derive(Clone, Debug)]
pub struct Enrol {
    /// Where the agent keeps its state.
    pub state_folder: PathBuf,
    /// The file that holds the token.
    pub token_file: PathBuf,
    /// A gateway's door for agents, as `https://host:port`.
    pub gateway: String,
    /// The CA's key, known out of band.
    pub ca_pin: CaPin,
    /// The name that the host wants in its token's namespace.
    pub name: Name,
}

/// Why a host is not enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// It is already.
    #[error("this host is enrolled already; its identity lies in {}", .0.display())]
    Already(PathBuf),
    /// The token's file cannot be read.
    #[error("cannot read the token")]
    TokenFile(#[source] files::Error),
    /// The file holds no token.
    #[error("{} holds no enrolment token", .path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: token::Error,
    },
    /// A key or request cannot be made, or the answer's certificate does not fit.
    #[error("the certificate cannot be made or used")]
    Credential(#[from] credential::Error),
    /// A signing key cannot be made or read.
    #[error("a signing key cannot be made or used")]
    Key(#[from] signing::Error),
    /// The TLS configuration cannot be made.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The gateway cannot be asked.
    #[error("cannot ask the gateway")]
    Gateway(#[from] https::Error),
    /// The gateway showed no CA with the pinned key.
    #[error("the gateway's CA is not the pinned one")]
    Pin(#[from] pin::Error),
    /// The gateway says no.
    #[error("the gateway refuses, {code}: {detail}")]
    Refused {
        /// The stable word for why.
        code: String,
        /// What to do about it.
        detail: String,
    },
    /// The answer cannot be read.
    #[error("the gateway's answer cannot be read")]
    Answer(#[source] serde_json::Error),
    /// The identity cannot be kept.
    #[error("the host's identity cannot be kept")]
    Save(#[source] Error),
}

impl EnrolError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub fn rule(&self) -> &str {
        match self {
            Self::Already(_) => "enrolled-already",
            Self::TokenFile(error) => error.rule(),
            Self::Token { source, .. } => source.rule(),
            Self::Credential(error) => error.rule(),
            Self::Key(error) => error.rule(),
            Self::Tls(error) => error.rule(),
            Self::Gateway(error) => error.rule(),
            Self::Pin(error) => error.rule(),
            Self::Refused { code, .. } => code,
            Self::Answer(_) => "gateway-answer",
            Self::Save(error) => error.rule(),
        }
    }
}

impl EnrolError {
    /// Whether it may pass by itself: an answer that was lost is there for whoever asks the same again.
    fn passes(&self) -> bool {
        match self {
            Self::Gateway(error) => {
                use https::Error::{Connect, Exchange, HungUp, Timeout};
                matches!(error, Connect { .. } | Exchange { .. } | HungUp { .. } | Timeout { .. })
            }
            Self::Refused { code, .. } => ["busy", "authority-away", "no-answer"].contains(&code.as_str()),
            Self::Already(_)
            | Self::TokenFile(_)
            | Self::Token { .. }
            | Self::Credential(_)
            | Self::Key(_)
            | Self::Tls(_)
            | Self::Pin(_)
            | Self::Answer(_)
            | Self::Save(_) => false,
        }
    }
}

/// Enrols this host; who it is from now on.
///
/// # Errors
/// [`EnrolError`]; nothing is kept then.
pub async fn enrol(with: &Enrol) -> Result<HostId, EnrolError> {
    if is_enrolled(&with.state_folder) {
        return Err(EnrolError::Already(with.state_folder.clone()));
    }
    let (path, text) = (&with.token_file, files::read_secret(&with.token_file).map_err(EnrolError::TokenFile)?);
    let bad = |source| EnrolError::Token { path: path.clone(), source };
    let text = std::str::from_utf8(&text).map_err(|_| bad(token::Error::Malformed))?;
    let token = Token::parse(TokenKind::Enrol, text).map_err(bad)?;
    let (leaf, outcome_key) = (LeafKey::generate()?, SigningKey::generate()?);
    let says = inventory::observe();
    let request = EnrolRequest {
        token: TokenText(token.reveal().to_owned()),
        name: with.name.clone(),
        csr: STANDARD.encode(leaf.request()?),
        outcome_key: outcome_key.verifying_key().to_string(),
        hostname: says.hostname,
        kernel: says.kernel,
        addresses: says.addresses,
    };
    let body = serde_json::to_vec(&request).map_err(EnrolError::Answer)?;
    let response = ask_patiently(with, &body).await?;
    let answer: EnrolResponse = serde_json::from_slice(&response.body).map_err(EnrolError::Answer)?;
    let ca = with.ca_pin.find_ca(&response.peer_certificates)?;
    let credential = leaf.credential(answer.certificate_chain.as_bytes())?;
    // The gateway carries the key, the CA vouches for it.
    let renderer_key = VerifyingKey::certified(&answer.renderer_certificate, ca, OffsetDateTime::now_utc())?;
    let told = Told {
        host_id: answer.host_id,
        authority_id: answer.authority_id,
        authority_epoch: answer.authority_epoch,
        renderer_key: renderer_key.to_string(),
        ca_pin: with.ca_pin.to_string(),
        gateways: gateways(answer.gateways, &with.gateway),
    };
    save(&with.state_folder, &told, &ca_pem(ca), &credential, &outcome_key).map_err(EnrolError::Save)?;
    Ok(answer.host_id)
}

/// Asks until there is an answer, while the reason for none is one that passes by itself. It is the same request each time, key and all, which
/// takes one use of the token however often it is asked.
async fn ask_patiently(with: &Enrol, body: &[u8]) -> Result<Response, EnrolError> {
    let began = Instant::now();
    let mut backoff = Backoff::new(random());
    loop {
        let error = match ask(with, body).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let wait = backoff.next_wait();
        if !error.passes() || began.elapsed() + wait > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(wait).await;
    }
}

async fn ask(with: &Enrol, body: &[u8]) -> Result<Response, EnrolError> {
    let url = format!("{}{ENROL_PATH}", with.gateway.trim_end_matches('/'));
    let request = Request::new(Method::POST, url)
        .header(CONTENT_TYPE, "application/json")?
        .body(body.to_vec())
        .timeout(ANSWER_TIMEOUT);
    let response = Client::new(enrolment(with.ca_pin)?).request(request).await?;
    if response.status.is_success() {
        return Ok(response);
    }
    let problem: Problem = serde_json::from_slice(&response.body).map_err(EnrolError::Answer)?;
    Err(EnrolError::Refused { code: problem.code, detail: problem.detail })
}

/// The gateways to dial; the one that answered, where the answer names none.
fn gateways(named: Vec<String>, answered: &str) -> Vec<String> {
    if !named.is_empty() {
        return named;
    }
    let authority = answered.trim_start_matches("https://").trim_end_matches('/');
    vec![authority.to_owned()]
}

/// RFC 7468: base64 in lines of 64 between two markers.
fn ca_pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let (lines, rest) = body.as_bytes().as_chunks::<64>();
    for line in lines.iter().map(<[u8; 64]>::as_slice).chain((!rest.is_empty()).then_some(rest)) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_that_answered_is_dialled_where_none_is_named() {
        assert_eq!(gateways(vec![], "https://gw.example:7443/"), ["gw.example:7443"]);
        assert_eq!(gateways(vec!["a:1".to_owned()], "https://gw.example:7443"), ["a:1"]);
    }

    #[test]
    fn a_certificate_is_wrapped_in_lines_of_64() {
        let text = ca_pem(&[7; 100]);
        assert!(text.lines().all(|line| line.len() <= 64) && text.lines().count() == 5, "{text}");
    }
}
