//! Directives: said to whoever listens now, and kept by nobody.
//!
//! - They go past JetStream: one that is published while a listener is away is lost on purpose, and so is one while this process has no connection.
//! - What is no directive of this build is handed on as such: it is to be ignored and reported.

use std::time::Duration;

use futures_util::StreamExt as _;
use holdfast_events::{Directive, DirectiveError};
use tokio::sync::mpsc;

use crate::connect::Bus;
use crate::error::{BusError, boxed};

/// How long the server may take to have a directive.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The wait before a subscription is made again.
const RETRY: Duration = Duration::from_millis(500);

impl Bus {
    /// Says a directive to whoever listens now.
    ///
    /// # Errors
    /// [`BusError::Away`] if there is no connection, and nothing was said; [`BusError::Request`] if it is not known whether it was.
    pub async fn publish_directive(&self, directive: &Directive) -> Result<(), BusError> {
        let payload = directive.encode().map_err(|error| BusError::request("take a directive")(boxed(error)))?;
        // The client would keep it until it is connected, and say it then.
        if !self.link().borrow().up {
            return Err(BusError::Away);
        }
        let published = self.client.publish(directive.kind.subject(), payload.into()).await;
        published.map_err(|error| BusError::request("take a directive")(boxed(error)))?;
        let flushed = tokio::time::timeout(FLUSH_TIMEOUT, self.client.flush()).await;
        let flushed = flushed.map_err(|error| BusError::request("take a directive")(boxed(error)))?;
        flushed.map_err(|error| BusError::request("take a directive")(boxed(error)))
    }

    /// Hands on every directive that is said from now on, for as long as anybody takes them. What finds no room is dropped.
    pub async fn listen_to_directives(self, heard: mpsc::Sender<Result<Directive, DirectiveError>>) {
        while !heard.is_closed() {
            match self.client.subscribe(Directive::SUBJECTS).await {
                // The client subscribes again by itself whenever it is connected anew.
                Ok(mut messages) => loop {
                    let message = tokio::select! {
                        message = messages.next() => message,
                        () = heard.closed() => return,
                    };
                    let Some(message) = message else { break };
                    if heard.try_send(Directive::decode(&message.subject, &message.payload)).is_err() {
                        tracing::debug!("a directive finds no room");
                    }
                },
                Err(error) => tracing::debug!(%error, "no directives are heard yet"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}
