//! Who this host is, and who can be reached: identity, gateways, clock.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use holdfast_identity::https::{Client, Request};
use holdfast_identity::{Validity, tls};
use holdfast_runtime::Chain;
use hyper::Method;
use hyper::header::DATE;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

use super::Findings;
use crate::enrolment::{self, Enrolment};
use crate::service::Status;

/// How long a gateway may take to answer.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// How far two clocks may be apart.
const SKEW_SECONDS_MAX: i64 = 60;

pub(super) async fn look(state: &Path, status: Option<&Status>, findings: &mut Findings) {
    const NAME: &str = "identity";
    let enrolment = match Enrolment::load(state) {
        Ok(enrolment) => enrolment,
        Err(enrolment::Error::Absent) if status.is_some_and(|status| status.session.is_none()) => {
            findings.well(NAME, "none: this agent takes its policy from a file");
            return;
        }
        Err(error) => {
            let remedy = "enrol it with a token: holdfast-agent enrol --help; or name its folder by --state (in the lab: holdfast-lab hosts)";
            findings.unwell(NAME, Chain(&error).to_string(), remedy);
            return;
        }
    };
    match enrolment.credential() {
        Ok(credential) => {
            dates(&enrolment.host.to_string(), credential.validity(), OffsetDateTime::now_utc(), findings);
        }
        Err(error) => {
            findings.unwell(NAME, Chain(&error).to_string(), "enrol it with a new token: holdfast-agent enrol --help")
        }
    }
    let mut skew = None;
    let mut reached = 0_usize;
    for name in &enrolment.gateways {
        match gateway(&enrolment, name).await {
            Ok(apart) => {
                reached += 1;
                skew = skew.or(apart);
            }
            Err(error) => findings.unwell(
                "gateway",
                format!("{name}: {error}"),
                "is it up, is the way open (firewalls between, the gateways' own addresses), is it of this authority?",
            ),
        }
    }
    if reached > 0 {
        findings.well(
            "gateways",
            format!("{reached} of {} answer under the CA of the enrolment", enrolment.gateways.len()),
        );
    }
    if let Some(seconds) = skew {
        clock(seconds, findings);
    }
}

fn dates(host: &str, validity: Validity, now: OffsetDateTime, findings: &mut Findings) {
    let until = validity.not_after;
    let date = until.format(&Rfc3339).unwrap_or_else(|_| until.to_string());
    let detail = format!("{host}, certificate until {date}");
    // The next one is due after two thirds of a life at the latest: with a quarter left it was asked for in vain for hours.
    let last_quarter = until - (until - validity.not_before) / 4;
    if until <= now {
        let remedy = "no gateway lets it in any more: stop the agent, move the state folder's `identity` away and enrol with a new token: \
                      holdfast-agent enrol --help";
        findings.unwell("identity", format!("{detail}, which is over"), remedy);
    } else if now >= last_quarter {
        let remedy = "the running agent should have renewed it: is it running, does a gateway answer? its log says why (`not renewed`)";
        findings.unwell("identity", format!("{detail}, and was not renewed"), remedy);
    } else {
        findings.well("identity", detail);
    }
}

fn clock(seconds: i64, findings: &mut Findings) {
    let detail = match seconds {
        -2..=2 => "the same as the gateway's".to_owned(),
        ahead @ 3.. => format!("{ahead} s ahead of the gateway's"),
        behind => format!("{} s behind the gateway's", behind.unsigned_abs()),
    };
    if seconds.abs() > SKEW_SECONDS_MAX {
        findings.unwell("clock", detail, "set both clocks by NTP (timedatectl): certificates are good by the clock");
    } else {
        findings.well("clock", detail);
    }
}

/// How far this clock is ahead of a gateway's, if it says what time it is there.
async fn gateway(enrolment: &Enrolment, name: &str) -> Result<Option<i64>, String> {
    let addresses: Vec<SocketAddr> = name.to_socket_addrs().map_err(|error| error.to_string())?.collect();
    if addresses.is_empty() {
        return Err("the name has no address".to_owned());
    }
    let config = tls::https(&enrolment.roots).map_err(|error| Chain(&error).to_string())?;
    let request = Request::new(Method::GET, format!("https://{name}/")).timeout(GATEWAY_TIMEOUT);
    // Whatever it answers: that it does, under this CA, is what was asked.
    let response = Client::new(config).request(request).await.map_err(|error| Chain(&error).to_string())?;
    let told = response.headers.get(DATE).and_then(|date| date.to_str().ok()).map(|date| date.replace("GMT", "+0000"));
    let theirs = told.and_then(|date| OffsetDateTime::parse(&date, &Rfc2822).ok());
    Ok(theirs.map(|theirs| (OffsetDateTime::now_utc() - theirs).whole_seconds()))
}

#[cfg(test)]
mod tests {
    use super::super::seen;
    use super::*;

    #[test]
    fn a_host_that_is_not_enrolled_is_trouble() {
        let folder = tempfile::tempdir().expect("a folder");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let check = seen(|findings| runtime.block_on(look(folder.path(), None, findings)));
        assert!(!check.ok && check.detail.contains("not enrolled"), "{check:?}");
    }

    #[test]
    fn a_certificate_in_its_last_quarter_or_over_and_a_clock_a_minute_off_are_trouble() {
        let begin = OffsetDateTime::UNIX_EPOCH;
        let validity = Validity { not_before: begin, not_after: begin + time::Duration::hours(24) };
        let at = |hours| seen(|findings| dates("ho_1", validity, begin + time::Duration::hours(hours), findings));
        assert!(at(17).ok);
        assert!(!at(18).ok && at(18).detail.contains("not renewed"), "{:?}", at(18));
        assert!(!at(24).ok && at(24).detail.contains("over"), "{:?}", at(24));
        assert!(seen(|findings| clock(60, findings)).ok);
        assert!(!seen(|findings| clock(-61, findings)).ok);
    }
}
