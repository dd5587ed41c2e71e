//! The tables and words that people see, as files. `HOLDFAST_BLESS=1` rewrites them; the difference is reviewed with the change.

use std::path::Path;

use holdfast_model::statement::OutcomeKind;

use crate::plane::Plane;

#[tokio::test]
async fn tables_and_words_are_those_of_the_committed_files() {
    let mut plane = Plane::start().await;
    plane.enrol("db-1", "10.0.0.1").await;
    plane.enrol("web-1", "10.0.0.2").await;
    plane.file("policies.yaml", crate::intent::POLICIES);
    check("explain-host-never", &plane.run(&["explain", "host", "web-1"]).await.ended(0));
    check("apply", &plane.run(&["apply", "-f", "policies.yaml"]).await.ended(0));
    plane.render().await;
    plane.all_say(OutcomeKind::Applied).await;
    check("status", &plane.run(&["status"]).await.ended(0));
    check("get-hosts", &plane.run(&["get", "hosts"]).await.ended(0));
    check("get-objects", &plane.run(&["get", "objects"]).await.ended(0));
    check("get-policy", &plane.run(&["get", "Policy/default/db", "-o", "yaml"]).await.ended(0));
    check("explain-allowed", &plane.run(&["explain", "flow", "web-1", "db-1", "5432/tcp"]).await.ended(0));
    check("explain-denied", &plane.run(&["explain", "flow", "198.51.100.9", "10.0.0.1", "22/tcp"]).await.ended(0));
    check("describe-policy", &plane.run(&["describe", "Policy/default/db"]).await.ended(0));
    check("describe-host-proven", &plane.run(&["describe", "host", "db-1"]).await.ended(0));
    check("explain-host-proven", &plane.run(&["explain", "host", "db-1"]).await.ended(0));
    check("diff-none", &plane.run(&["diff", "db-1"]).await.ended(0));

    plane.file("other.yaml", &crate::intent::POLICIES.replace("tcp: 5432", "tcp: 5433"));
    check("plan", &plane.run(&["plan", "-f", "other.yaml"]).await.ended(0));
    plane.run(&["apply", "-f", "other.yaml"]).await.ended(0);
    plane.render().await;
    check("diff", &plane.run(&["diff", "default/db-1"]).await.ended(0));
    plane.says("db-1", OutcomeKind::Failed).await;
    check("explain-host", &plane.run(&["explain", "host", "db-1"]).await.ended(0));
    check("describe-host", &plane.run(&["describe", "host", "db-1"]).await.ended(0));
    check("describe-host-wide", &plane.run(&["describe", "host", "db-1", "-o", "wide"]).await.ended(0));
    let gone = ["host", "decommission", "web-1", "--because", "its disk is gone"];
    check("decommission", &plane.run(&gone).await.ended(0));
    assert_eq!(plane.run(&gone).await.code, 3, "it is out once");
    assert_eq!(plane.run(&["describe", "host", "web-1"]).await.code, 3);
    assert_eq!(plane.run(&["explain", "flow", "nobody", "db-1", "22/tcp"]).await.code, 3);
    assert_eq!(plane.run(&["explain", "flow", "web-1", "db-1", "tcp"]).await.code, 1);
}

fn check(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/golden").join(format!("{name}.txt"));
    let shown = masked(shown);
    if std::env::var_os("HOLDFAST_BLESS").is_some() {
        std::fs::write(&path, &shown).expect("writes");
    }
    let committed = std::fs::read_to_string(&path).expect("the file is committed");
    assert_eq!(shown, committed, "{name}: HOLDFAST_BLESS=1 rewrites it");
}

/// Ids, times, digests and ages differ from run to run.
fn masked(text: &str) -> String {
    let word = |whole: &str| {
        let (word, comma) = whole.strip_suffix(',').map_or((whole, ""), |word| (word, ","));
        let is_id = word.len() == 39 && word.as_bytes().get(2) == Some(&b'_');
        let is_digest = word.len() == 64 && word.bytes().all(|c| c.is_ascii_hexdigit());
        let is_time = word.len() >= 20 && word.ends_with('Z') && word.as_bytes().get(10) == Some(&b'T');
        match (is_id, is_digest, is_time) {
            (true, ..) => format!("{}_ID{comma}", word.get(..2).unwrap_or_default()),
            (_, true, _) => format!("DIGEST{comma}"),
            (.., true) => format!("TIME{comma}"),
            _ => whole.to_owned(),
        }
    };
    let line = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(word).collect();
        // An age is a number, a unit and `ago`; a time for people is a date in brackets and what ends them.
        let is_age: Vec<bool> =
            words.windows(3).map(|three| three[0].parse::<u64>().is_ok() && three[2].starts_with("ago")).collect();
        let is_date = |word: &str| word.len() == 11 && word.starts_with("(2") && word.matches('-').count() == 2;
        let after_date: Vec<bool> = words.iter().map(|word| is_date(word)).collect();
        for (at, word) in words.iter_mut().enumerate() {
            if is_age.get(at) == Some(&true) {
                "N".clone_into(word);
            } else if after_date[at] {
                "(DATE".clone_into(word);
            } else if at > 0 && after_date[at - 1] {
                "TIME)".clone_into(word);
            }
        }
        words.join(" ")
    };
    text.lines().map(|one| line(one) + "\n").collect()
}
