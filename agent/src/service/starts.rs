//! How often the agent was started under one trial: a policy under which it is ended again and again has less time to prove itself.
//!
//! - A trial's time begins anew with each process, for nobody knows whether the one before could ask anybody. So that an agent that is killed within
//!   that time ends a trial all the same, it is an eighth from the third start on.
//! - It is less time and no other evidence: only what the policy drops of a gateway is held against it, so a gateway that is down takes nothing back.
//! - The count lies in a file of its own, which agents of earlier builds pass over. What cannot be read or kept counts as no start: the policy has its
//!   whole time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_identity::files;
use holdfast_model::desired::Stamp;
use holdfast_runtime::Chain;
use serde::{Deserialize, Serialize};

const FILE: &str = "trial.json";
/// From this start under one trial on its time is short: an operator who starts an agent twice to look at it is not in a hurry.
const SHORT_FROM: u32 = 3;
/// How many times as short: of 20 s what two looks at every gateway take.
const SHORTER_BY: u32 = 8;

/// What is kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Kept {
    version: u64,
    digest: String,
    starts: u32,
}

/// How long policies have to prove that they lead to a gateway.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    whole: Duration,
    /// That of the one that was on trial when the agent started.
    carried: Option<(Stamp, Duration)>,
}

impl Windows {
    /// Counts this start, under what is on trial.
    pub(super) fn at_start(state_folder: &Path, on_trial: Option<Stamp>, whole: Duration) -> Self {
        let file = state_folder.join(FILE);
        let Some(stamp) = on_trial else {
            if let Err(error) = fs::remove_file(&file)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "how often a trial was begun anew cannot be forgotten");
            }
            return Self { whole, carried: None };
        };
        let starts = count(file, stamp);
        let window = if starts >= SHORT_FROM { whole / SHORTER_BY } else { whole };
        if window < whole {
            let (version, window_ms) = (stamp.version.raw(), u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
            tracing::warn!(
                version,
                starts,
                window_ms,
                "the agent was started again and again under one trial: it is short"
            );
        }
        Self { whole, carried: Some((stamp, window)) }
    }

    /// How long this one has.
    pub(super) fn of(&self, stamp: Stamp) -> Duration {
        self.carried.filter(|(carried, _)| *carried == stamp).map_or(self.whole, |(_, window)| window)
    }
}

/// One start more under this one; how many that are.
fn count(file: PathBuf, stamp: Stamp) -> u32 {
    let (version, digest) = (stamp.version.raw(), stamp.digest.to_string());
    let before = fs::read(&file).ok().and_then(|text| serde_json::from_slice::<Kept>(&text).ok());
    let before = before.filter(|kept| (kept.version, &kept.digest) == (version, &digest)).map_or(0, |kept| kept.starts);
    let kept = Kept { version, digest, starts: before.saturating_add(1) };
    match serde_json::to_vec(&kept).map(|text| files::write_secret(&file, &text)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = %Chain(&error), "that a trial goes on after a start is not counted"),
        Err(error) => tracing::warn!(error = %Chain(&error), "that a trial goes on after a start is not counted"),
    }
    kept.starts
}

#[cfg(test)]
mod tests {
    use holdfast_model::digest::Digest;
    use holdfast_model::numbers::Version;

    use super::*;

    const WHOLE: Duration = Duration::from_secs(20);

    fn mk_stamp(version: u64) -> Stamp {
        Stamp { version: Version::from_raw(version).expect("not zero"), digest: Digest::of(b"one") }
    }

    #[test]
    fn the_third_start_under_one_trial_leaves_it_an_eighth_and_any_other_policy_has_its_whole_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |on_trial| Windows::at_start(folder.path(), on_trial, WHOLE);
        let of = |windows: Windows, stamp| windows.of(stamp);
        let (one, other) = (mk_stamp(2), mk_stamp(3));
        for wanted in [WHOLE, WHOLE, WHOLE / 8, WHOLE / 8] {
            let windows = start(Some(one));
            assert_eq!((of(windows, one), of(windows, other)), (wanted, WHOLE));
        }
        // Another trial is counted for itself, and so is the same after none was under way.
        assert_eq!(of(start(Some(other)), other), WHOLE);
        assert_eq!(of(start(Some(one)), one), WHOLE);
        for _start in 0..2 {
            start(Some(one));
        }
        start(None);
        assert!(!folder.path().join(FILE).exists());
        assert_eq!(of(start(Some(one)), one), WHOLE);
        // What cannot be read or kept is no start.
        fs::remove_file(folder.path().join(FILE)).expect("it is ours");
        fs::create_dir(folder.path().join(FILE)).expect("it is ours");
        for _start in 0..4 {
            assert_eq!(of(start(Some(one)), one), WHOLE);
        }
    }
}
