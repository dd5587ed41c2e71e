//! The trial of a policy, and the echo that one is owed that an earlier process confirmed, as the thread that owns kernel and disk goes through it.

use super::Unproven;
use super::thread::Thread;

impl Thread {
    /// Tells what has still to lead to a gateway; what was told before is another one.
    pub(super) fn tell_unproven(&mut self) {
        let trial = self.engine.on_trial().map(|stamp| (stamp, true));
        let owed = trial.or_else(|| self.engine.owes_echo().map(|stamp| (stamp, false)));
        let told = *self.told.unproven.borrow();
        if told.map(|told| (told.stamp, told.is_on_trial)) != owed {
            self.unproven += 1;
            let nth = self.unproven;
            let one = owed.map(|(stamp, is_on_trial)| Unproven { stamp, nth, is_on_trial });
            self.told.unproven.send_replace(one);
        }
    }

    fn is_told(&self, one: Unproven) -> bool {
        *self.told.unproven.borrow() == Some(one)
    }

    pub(super) fn confirm(&mut self, one: Unproven) -> bool {
        if !self.is_told(one) {
            return false;
        }
        // What led to a gateway may be what another process put in its place.
        let drifts = self.engine.drifts();
        self.settle_drift();
        if self.engine.drifts() != drifts {
            self.tell_standing(true);
            return false;
        }
        let version = one.stamp.version.raw();
        match self.engine.confirm() {
            Ok(true) if one.is_on_trial => {
                self.is_unkept_told = false;
                tracing::info!(version, "policy leads to a gateway: it is confirmed");
            }
            Ok(true) => tracing::info!(version, "policy leads to a gateway, as it did before this start"),
            Ok(false) => {
                tracing::debug!("a gateway gives an echo, and the kernel is not known to hold what it is of")
            }
            Err(error) if self.is_unkept_told => {
                tracing::debug!(%error, "that a policy is confirmed cannot be kept yet");
            }
            Err(error) => {
                self.is_unkept_told = true;
                tracing::warn!(%error, "that a policy is confirmed cannot be kept; it stays on trial until it can");
            }
        }
        self.tell_unproven();
        self.tell_standing(false);
        self.told.unproven.borrow().is_none()
    }

    pub(super) fn take_back(&mut self, trial: Unproven) -> bool {
        if !trial.is_on_trial || !self.is_told(trial) {
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
        self.tell_unproven();
        self.engine.on_trial().is_none()
    }

    pub(super) fn gateway_drops(&mut self) -> Option<u64> {
        let drops = self.engine.gateway_drops();
        drops.inspect_err(|error| tracing::warn!(%error, "what the policy drops of gateways cannot be read")).ok()
    }
}
