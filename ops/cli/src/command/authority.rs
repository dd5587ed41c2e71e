//! `authority`: which life of the database this is, that it has another one, and that hosts may go back.

use holdfast_api::authority::{
    AuthorityView, BumpAuthority, ClaimView, ConfirmRollback, ConfirmedRollback, LifeView, WaitsFor,
};
use time::OffsetDateTime;

use crate::api::Api;
use crate::args::Authority;
use crate::error::{End, Error};
use crate::output::{Answer, Format, table, word};
use crate::words::{count, short_time, since};

/// Runs one of them.
pub(super) async fn run(api: &Api, command: Authority, format: Format) -> Result<End, Error> {
    match command {
        Authority::Show => {
            let view: AuthorityView = api.get("/v1/authority").await?;
            show(&view, format)?;
        }
        Authority::Bump { because, above } => {
            let wanted = BumpAuthority { because, above };
            let view: AuthorityView = api.change("/v1/authority/bump", &wanted, None).await?;
            word(&format!(
                "epoch {} begins; hosts come back within a minute and say what they hold: `holdfast authority show`",
                view.epoch
            ));
            show(&view, format)?;
        }
        Authority::Confirm { expect } => {
            let wanted = ConfirmRollback { expect };
            let view: ConfirmedRollback = api.change("/v1/authority/confirm", &wanted, None).await?;
            let text = match view.hosts {
                1 => "1 host goes back".to_owned(),
                n => format!("{n} hosts go back"),
            };
            Answer { value: &view, names: Vec::new(), text }.show(format)?;
        }
    }
    Ok(End::Done)
}

fn show(view: &AuthorityView, format: Format) -> Result<(), Error> {
    let names = vec![view.id.clone()];
    Answer { value: view, names, text: text_of(view, OffsetDateTime::now_utc()) }.show(format)
}

fn text_of(view: &AuthorityView, now: OffsetDateTime) -> String {
    let mut lines = vec![
        format!("Authority:  {}", view.id),
        format!("Epoch:      {}, since {} ({})", view.epoch, short_time(&view.since), since(&view.since, now)),
    ];
    if let Some(raised) = &view.raised {
        lines.push(format!("Raised by:  {}: {}", raised.by, raised.because));
    }
    let LifeView { ahead, going_back, unheard, following } = view.hosts;
    let hosts = |n| count(n, "host");
    if ahead > 0 {
        lines.push(format!(
            "Ahead:      {} refuse what is older than what they hold; was the database restored? `holdfast authority bump`",
            hosts(ahead)
        ));
    }
    if going_back > 0 {
        lines.push(format!(
            "Go back:    {}, once that is confirmed: `holdfast authority confirm --expect {going_back}`",
            hosts(going_back)
        ));
    }
    if unheard > 0 {
        lines.push(format!("Unheard:    {} did not come back in this epoch yet", hosts(unheard)));
    }
    if following > 0 {
        lines.push(format!("Follow:     {}, any moment now", hosts(following)));
    }
    if view.hosts == LifeView::default() {
        lines.push("Hosts:      none is in another epoch, none is ahead of this database".to_owned());
    }
    if !view.claims.is_empty() {
        lines.push(String::new());
        lines
            .push(table(["HOST", "COMPONENT", "HOLDS", "DESIRED", "WAITS FOR"], view.claims.iter().map(row).collect()));
    }
    lines.join("\n")
}

fn row(claim: &ClaimView) -> [String; 5] {
    let waits_for = match claim.waits_for {
        WaitsFor::Bump => "bump",
        WaitsFor::Confirm => "confirm",
        WaitsFor::Session => "a session",
    };
    let version = |stamp: &holdfast_api::status::StampView| {
        format!("{} ({})", stamp.version, stamp.digest.chars().take(12).collect::<String>())
    };
    [
        claim.name.clone(),
        claim.component.to_string(),
        version(&claim.held),
        version(&claim.latest),
        waits_for.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(hosts: LifeView) -> String {
        let view = AuthorityView {
            id: "au_00000000-0000-0000-0000-000000000001".to_owned(),
            epoch: 2,
            since: "1970-01-01T00:00:00Z".to_owned(),
            raised: None,
            waits_for_confirmation: hosts.going_back > 0,
            hosts,
            claims: Vec::new(),
        };
        text_of(&view, OffsetDateTime::UNIX_EPOCH)
    }

    #[test]
    fn what_is_to_be_done_next_stands_beside_what_is_wrong_and_nothing_where_nothing_is() {
        let none = LifeView::default();
        assert!(told(LifeView { ahead: 3, ..none }).contains("3 hosts refuse"));
        assert!(told(LifeView { going_back: 4, ..none }).contains("`holdfast authority confirm --expect 4`"));
        let waiting = told(LifeView { unheard: 1, following: 2, ..none });
        assert!(waiting.contains("1 host did not") && waiting.contains("2 hosts, any moment"), "{waiting}");
        assert!(told(none).contains("none is in another epoch") && !waiting.contains("none is in another"));
    }
}
