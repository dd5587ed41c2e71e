//! What a person can do to a plane's NATS, with the two users that may do everything in their accounts.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::Config;
use async_nats::{Client, ConnectOptions, jetstream};
use bytes::Bytes;
use holdfast_identity::tls::mutual;
use holdfast_identity::{Credential, TrustRoots};
use holdfast_lab::netns;
use holdfast_suite::plane::Plane;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
/// Messages that are sent before it is asked whether the server has them.
const FLUSHED: usize = 1_000;

/// An account of the server, and its person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Account {
    /// That of hints.
    Hints,
    /// That of events.
    Events,
}

impl Account {
    const fn user(self) -> &'static str {
        match self {
            Self::Hints => "holdfast_nats_hints_admin",
            Self::Events => "holdfast_nats_admin",
        }
    }

    const fn stream(self) -> &'static str {
        match self {
            Self::Hints => "HOLDFAST_HINTS",
            Self::Events => "HOLDFAST_EVENTS",
        }
    }
}

/// Deletes the stream of an account.
pub(crate) fn delete_stream(plane: &Plane, account: Account) {
    within(plane, account, async |client| {
        let deleted = jetstream::new(client).delete_stream(account.stream()).await.expect("a person may");
        assert!(deleted.success);
    });
}

/// Lets the stream of an account keep few messages, and forget the oldest ones.
pub(crate) fn limit_stream(plane: &Plane, account: Account, max_messages: i64) {
    within(plane, account, async |client| {
        let jetstream = jetstream::new(client);
        let mut stream = jetstream.get_stream(account.stream()).await.expect("it is there");
        let discard = jetstream::stream::DiscardPolicy::Old;
        let config = Config { max_messages, discard, ..stream.info().await.expect("it answers").config.clone() };
        jetstream.update_stream(config).await.expect("a person may");
    });
}

/// Asks for everything in the stream of an account to be removed; whether the server did.
pub(crate) fn purge_stream(plane: &Plane, account: Account) -> bool {
    within(plane, account, async |client| {
        let stream = jetstream::new(client).get_stream(account.stream()).await.expect("it is there");
        stream.purge().await.is_ok_and(|purged| purged.success)
    })
}

/// How many messages the stream of an account has; none while it is not there.
pub(crate) fn stream_size(plane: &Plane, account: Account) -> u64 {
    within(plane, account, async |client| {
        let Ok(stream) = jetstream::new(client).get_stream(account.stream()).await else { return 0 };
        stream.cached_info().state.messages
    })
}

/// All that the stream of hints has: subjects and bytes.
pub(crate) fn hints(plane: &Plane) -> Vec<(String, Bytes)> {
    within(plane, Account::Hints, async |client| {
        let jetstream = jetstream::new(client);
        let mut stream = jetstream.get_stream(Account::Hints.stream()).await.expect("it is there");
        let count = stream.info().await.expect("it answers").state.messages;
        let config = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
        let consumer = stream.create_consumer(config).await.expect("a person may");
        let mut hints = Vec::new();
        let mut messages = consumer.messages().await.expect("it answers");
        for _ in 0..count {
            let message = futures_util::StreamExt::next(&mut messages).await.expect("there is another");
            let message = message.expect("it comes").message;
            hints.push((message.subject.to_string(), message.payload));
        }
        hints
    })
}

/// Publishes as a person, and waits until the server has all of it.
pub(crate) fn publish(plane: &Plane, account: Account, messages: Vec<(String, Bytes)>) {
    within(plane, account, async |client| {
        for some in messages.chunks(FLUSHED) {
            for (subject, payload) in some {
                client.publish(subject.clone(), payload.clone()).await.expect("it is sent");
            }
            client.flush().await.expect("the server has it");
        }
    });
}

fn within<T: Send>(plane: &Plane, account: Account, work: impl AsyncFnOnce(Client) -> T + Send) -> T {
    let folder = plane.folder().join("keys/nats-admin");
    let credential = Credential::load_named(&folder, account.user()).expect("init made it");
    let roots = TrustRoots::load(&folder.join("ca.pem")).expect("init made it");
    let options = ConnectOptions::new()
        .custom_inbox_prefix(format!("_INBOX_{}", account.user()))
        .require_tls(true)
        .tls_client_config(mutual(&credential, &roots).expect("they fit"));
    let done = netns::within(&plane.control(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let client = options.connect("tls://127.0.0.1:4222").await.expect("NATS knows the user");
            timeout(DEADLINE, work(client)).await.expect("NATS answers in time")
        })
    });
    done.expect("the control namespace stands")
}
