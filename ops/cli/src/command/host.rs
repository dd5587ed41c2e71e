//! `host`: what is asked of one host's agent, and what moves once it is heard.

use std::time::{Duration, Instant};

use holdfast_api::directive::DirectiveView;
use holdfast_api::status::{DecommissionHost, DecommissionedHost, HostView};

use super::apply::warn;
use crate::api::{Api, escape};
use crate::args::{Directed, Host};
use crate::error::{End, Error};
use crate::output::{Answer, Format, or_dash, word};
use crate::progress::Progress;

/// How often a wait looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The pause before an API that is away is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Asks, and with `--wait` looks until it shows that the host was reached.
pub(super) async fn host(api: &Api, command: Host, format: Format) -> Result<End, Error> {
    let (kind, Directed { host, wait, timeout }) = match command {
        Host::Decommission { host, because, acknowledge } => {
            return decommission(api, &host, DecommissionHost { because, acknowledge }, format).await;
        }
        Host::ResendSnapshot(directed) => (Kind::ResendSnapshot, directed),
        Host::Reconnect(directed) => (Kind::Reconnect, directed),
        Host::ReEnrol(directed) => (Kind::ReEnrol, directed),
    };
    let nothing = serde_json::json!({});
    let path = format!("/v1/hosts/{}/{}", escape(&host), kind.word());
    let asked: DirectiveView = api.post(&path, &nothing, None).await?;
    if !wait {
        show(&asked, None, format)?;
        return Ok(End::Done);
    }
    let waiting = format!("waiting: {} has not obeyed", asked.name);
    let after = Progress::new(format).during(&waiting, Box::pin(obeyed(api, kind, &asked, timeout))).await?;
    show(&asked, Some(after.is_some()), format)?;
    match after {
        Some(host) => {
            word(&kind.done(&host));
            Ok(End::Done)
        }
        None => {
            let seconds = timeout.as_secs_f64();
            word(&format!("nothing moved within {seconds} s: a directive that nobody hears is lost, so ask again"));
            Ok(End::NotApplied)
        }
    }
}

async fn decommission(api: &Api, host: &str, request: DecommissionHost, format: Format) -> Result<End, Error> {
    let path = format!("/v1/hosts/{}/decommission", escape(host));
    let out: DecommissionedHost = api.change(&path, &request, None).await?;
    let text = format!("{} is out by revision {}: {}", out.name, out.revision, out.operation);
    Answer { value: &out, names: vec![out.host.clone()], text }.show(format)?;
    warn(&out.warnings);
    word("what the machine enforces stays until it is ended there: holdfast-agent down");
    Ok(End::Done)
}

/// What is asked.
#[derive(Clone, Copy)]
enum Kind {
    ResendSnapshot,
    Reconnect,
    ReEnrol,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::ResendSnapshot => "resend-snapshot",
            Self::Reconnect => "reconnect",
            Self::ReEnrol => "re-enrol",
        }
    }

    /// Whether it shows that the host was reached.
    fn is_done(self, before: &DirectiveView, now: &HostView) -> bool {
        let session = now.session.as_ref();
        match self {
            Self::ResendSnapshot => {
                now.last_snapshot_sent_at.is_some() && now.last_snapshot_sent_at != before.last_snapshot_sent_at
            }
            Self::Reconnect => {
                session.is_some_and(|session| session.open && session.session_epoch > before.session_epoch)
            }
            Self::ReEnrol => session.is_none_or(|session| !session.open),
        }
    }

    fn done(self, now: &HostView) -> String {
        let name = format!("{}/{}", now.namespace, now.name);
        match self {
            Self::ResendSnapshot => {
                format!("{name} was sent its whole state at {}", or_dash(now.last_snapshot_sent_at.as_ref()))
            }
            Self::Reconnect => {
                let epoch = now.session.as_ref().map_or(0, |session| session.session_epoch);
                format!("{name} is back with session {epoch}")
            }
            Self::ReEnrol => {
                format!("{name} ended its sessions, and enforces what it has until it is enrolled anew")
            }
        }
    }
}

/// The host once it shows; nothing if it does not by then.
async fn obeyed(api: &Api, kind: Kind, before: &DirectiveView, timeout: Duration) -> Result<Option<HostView>, Error> {
    let deadline = Instant::now() + timeout;
    let path = format!("/v1/hosts/{}", escape(&before.host));
    loop {
        let pause = match api.get::<HostView>(&path).await {
            Ok(now) if kind.is_done(before, &now) => return Ok(Some(now)),
            Ok(_) => LOOK_EVERY,
            Err(error) if error.is_passing() => RETRY,
            Err(error) => return Err(error),
        };
        if Instant::now() + pause > deadline {
            return Ok(None);
        }
        tokio::time::sleep(pause).await;
    }
}

/// `obeyed` is there where it was waited for.
fn show(asked: &DirectiveView, obeyed: Option<bool>, format: Format) -> Result<(), Error> {
    let mut value = serde_json::to_value(asked)?;
    if let (serde_json::Value::Object(fields), Some(obeyed)) = (&mut value, obeyed) {
        fields.insert("obeyed".to_owned(), obeyed.into());
    }
    let (name, directive, epoch) = (&asked.name, &asked.directive, asked.session_epoch);
    let sent = or_dash(asked.last_snapshot_sent_at.as_ref());
    let text = format!("{name}: {directive} asked of session {epoch}; its last whole state was sent at {sent}");
    Answer { value: &value, names: vec![asked.host.clone()], text }.show(format)
}
