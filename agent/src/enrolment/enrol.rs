//! Enrolling: one call to a gateway, with the token, over a connection whose CA is the pinned one.
//!
//! - What is asked is on disk before it is asked, and the same is asked until the answer is in place: also by the next process, if this one dies.
//! - What was begun is given up only when it was refused, when it cannot have been taken, or when the caller says so.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_identity::https::{Client, Request, Response};
use holdfast_identity::tls::enrolment;
use holdfast_identity::{CaPin, Token, TokenKind, TrustRoots, VerifyingKey, files, token};
use holdfast_model::ids::HostId;
use holdfast_model::name::Name;
use holdfast_runtime::fail_point;
use holdfast_session::backoff::Backoff;
use holdfast_wire::enrol::{ENROL_PATH, EnrolResponse, Problem};
use hyper::Method;
use hyper::header::CONTENT_TYPE;
use time::OffsetDateTime;

use super::pending::{Folder, FolderError, Pending, forget};
use super::{EnrolError, Told, is_enrolled, save};
use crate::session::random;

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
    /// What becomes of an enrolment that was begun here before and never answered.
    pub begun: Begun,
}

/// What becomes of an enrolment that was begun before and never answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// It is asked for once more, if it is for the same name under the same CA.
    Finish,
    /// It is forgotten, though the control plane may have granted it.
    GiveUp,
}

/// A host that is enrolled now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Enrolled {
    /// Who it is from now on.
    pub host: HostId,
    /// Whose grant that is.
    pub by: Grant,
}

/// By which token a host is enrolled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grant {
    /// The one that was given.
    Given,
    /// That of an enrolment that was begun before; the one that was given was not used.
    Earlier,
}

/// Enrols this host.
///
/// # Errors
/// [`EnrolError`]; what may have been granted is kept then, and taken up by the next call.
pub async fn enrol(with: &Enrol) -> Result<Enrolled, EnrolError> {
    let folder = Folder::take(&with.state_folder).map_err(|error| match error {
        FolderError::Held => EnrolError::UnderWay(with.state_folder.clone()),
        FolderError::File(error) => EnrolError::Save(error.into()),
    })?;
    if is_enrolled(&with.state_folder) {
        forget(&with.state_folder).map_err(|error| EnrolError::Save(error.into()))?;
        return Err(EnrolError::Already(with.state_folder.clone()));
    }
    let token = read_token(with);
    let begun = match with.begun {
        Begun::Finish => folder.load().map_err(EnrolError::Begun)?,
        Begun::GiveUp => None,
    };
    if let Some(begun) = begun {
        if !begun.is_for(&with.name, with.ca_pin) {
            let (name, ca_pin) = (begun.request.name.clone(), begun.ca_pin().to_owned());
            return Err(EnrolError::Pending { name, ca_pin });
        }
        let is_given = token.as_ref().is_ok_and(|token| begun.shows(token));
        let by = if is_given { Grant::Given } else { Grant::Earlier };
        match finish(with, &folder, &begun, Taken::Perhaps).await {
            // What was begun came to nothing: the token that was given has its turn.
            Err(error) if by == Grant::Earlier && error.is_decided() => {}
            ended => return ended.map(|host| Enrolled { host, by }),
        }
    }
    let begun = folder.begin(&token?, &with.name, with.ca_pin).map_err(EnrolError::Save)?;
    fail_point("an enrolment", "on disk, before it is asked for");
    let host = finish(with, &folder, &begun, Taken::No).await?;
    Ok(Enrolled { host, by: Grant::Given })
}

fn read_token(with: &Enrol) -> Result<Token, EnrolError> {
    let (path, text) = (&with.token_file, files::read_secret(&with.token_file).map_err(EnrolError::TokenFile)?);
    let bad = |source| EnrolError::Token { path: path.clone(), source };
    let text = std::str::from_utf8(&text).map_err(|_| bad(token::Error::Malformed))?;
    Token::parse(TokenKind::Enrol, text).map_err(bad)
}

/// Whether the control plane may have taken a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    No,
    Perhaps,
}

/// Asks for what was begun and puts the answer in place. What came to nothing, or what cannot have been taken, is given up; all else is kept.
async fn finish(with: &Enrol, folder: &Folder, begun: &Pending, taken: Taken) -> Result<HostId, EnrolError> {
    let body = serde_json::to_vec(&begun.request).map_err(EnrolError::Answer)?;
    let (answered, taken) = ask_patiently(with, &body, taken).await;
    match answered {
        Ok(response) => {
            fail_point("an enrolment", "answered, before it is in place");
            put_in_place(with, begun, &response)
        }
        Err(error) => {
            if error.is_decided() || taken == Taken::No {
                // What is left of it is asked for by the next call, and refused once more.
                drop(folder.clear());
            }
            Err(error)
        }
    }
}

fn put_in_place(with: &Enrol, begun: &Pending, response: &Response) -> Result<HostId, EnrolError> {
    let answer: EnrolResponse = serde_json::from_slice(&response.body).map_err(EnrolError::Answer)?;
    let ca = with.ca_pin.find_ca(&response.peer_certificates)?;
    let credential = begun.leaf.credential(answer.certificate_chain.as_bytes())?;
    let (ended, now) = (credential.validity().not_after, OffsetDateTime::now_utc());
    // The gateway carries it: that the CA gave it, and to the host that it is called, is seen here.
    let roots = TrustRoots::new(vec![ca.clone().into_owned()])?;
    credential.check_host(&roots, answer.authority_id, answer.host_id, now)?;
    if ended <= now {
        return Err(EnrolError::Over { ended });
    }
    // The gateway carries the key, the CA vouches for it.
    let renderer_key = VerifyingKey::certified(&answer.renderer_certificate, ca, now)?;
    let told = Told {
        host_id: answer.host_id,
        authority_id: answer.authority_id,
        authority_epoch: answer.authority_epoch,
        renderer_key: renderer_key.to_string(),
        ca_pin: with.ca_pin.to_string(),
        gateways: gateways(answer.gateways, &with.gateway),
    };
    save(&with.state_folder, &told, &ca_pem(ca), &credential, &begun.outcome_key).map_err(EnrolError::Save)?;
    fail_point("an enrolment", "in place, before what was begun is removed");
    // The next start does it else, and says so when it cannot.
    drop(forget(&with.state_folder));
    Ok(answer.host_id)
}

/// Asks until there is an answer, while the reason for none is one that passes by itself. It is the same request each time, key and all, which
/// takes one use of the token however often it is asked. Says also whether it may have been taken.
async fn ask_patiently(with: &Enrol, body: &[u8], mut taken: Taken) -> (Result<Response, EnrolError>, Taken) {
    let began = Instant::now();
    let mut backoff = Backoff::new(random());
    loop {
        let error = match ask(with, body).await {
            Ok(response) => return (Ok(response), Taken::Perhaps),
            Err(error) => error,
        };
        if error.may_be_taken() {
            taken = Taken::Perhaps;
        }
        let wait = backoff.next_wait();
        if !error.passes() || began.elapsed() + wait > PATIENCE {
            return (Err(error), taken);
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
    Err(EnrolError::Refused { status: problem.status, code: problem.code, detail: problem.detail })
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
