//! The trial of a policy, as the thread that owns kernel and disk goes through it.

use super::{OnTrial, Thread};

impl Thread {
    /// Tells what is on trial; what was told before is another one.
    pub(super) fn tell_trial(&mut self) {
        let (stamp, told) = (self.engine.on_trial(), *self.told.trial.borrow());
        if told.map(|told| told.stamp) != stamp {
            self.trials += 1;
            let nth = self.trials;
            self.told.trial.send_replace(stamp.map(|stamp| OnTrial { stamp, nth }));
        }
    }

    pub(super) fn is_on_trial(&self, trial: OnTrial) -> bool {
        *self.told.trial.borrow() == Some(trial)
    }

    pub(super) fn confirm(&mut self, trial: OnTrial) -> bool {
        if !self.is_on_trial(trial) {
            return false;
        }
        match self.engine.confirm() {
            Ok(true) => {
                self.is_unkept_told = false;
                tracing::info!(version = trial.stamp.version.raw(), "policy leads to a gateway: it is confirmed");
            }
            Ok(false) => {
                tracing::debug!("a gateway gives an echo, and the kernel is not known to hold what is on trial")
            }
            Err(error) if self.is_unkept_told => {
                tracing::debug!(%error, "that a policy is confirmed cannot be kept yet");
            }
            Err(error) => {
                self.is_unkept_told = true;
                tracing::warn!(%error, "that a policy is confirmed cannot be kept; it stays on trial until it can");
            }
        }
        self.tell_trial();
        self.tell_standing(false);
        self.engine.on_trial().is_none()
    }

    pub(super) fn take_back(&mut self, trial: OnTrial) -> bool {
        if !self.is_on_trial(trial) {
            return false;
        }
        let (version, digest) = (trial.stamp.version.raw(), trial.stamp.digest.short());
        match self.engine.take_back() {
            Ok(_) => tracing::error!(version, digest, "policy cut this host off from its gateways and is taken back"),
            Err(error) => self.failed(&error, "a policy that cuts this host off is not taken back yet"),
        }
        if self.engine.on_trial().is_none() {
            self.memory.taken_back();
            self.tell_standing(true);
            self.told.taken_back.send_modify(|times| *times += 1);
        }
        self.tell_trial();
        self.engine.on_trial().is_none()
    }

    pub(super) fn gateway_drops(&mut self) -> Option<u64> {
        let drops = self.engine.gateway_drops();
        drops.inspect_err(|error| tracing::warn!(%error, "what the policy drops of gateways cannot be read")).ok()
    }
}
