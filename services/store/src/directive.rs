//! That an operator asked something of a host's session: a fact for the audit log, which nobody carries out.

use holdfast_events::{Actor, Directive, HostDirected};

use crate::error::Error;
use crate::outbox::Outbox;
use crate::pool::{Mode, Store};

impl Store {
    /// Records who asked what of which host.
    ///
    /// # Errors
    /// [`Error`] of the connection: what is not recorded is not to be said.
    pub async fn record_directive(&self, actor: Actor, Directive { kind, host }: Directive) -> Result<(), Error> {
        self.transact("record a directive", Mode::Write, move |tx| {
            Box::pin(async move {
                let mut outbox = Outbox::new(actor);
                outbox.push(HostDirected { host, directive: kind })?;
                outbox.write(tx).await
            })
        })
        .await
    }
}
