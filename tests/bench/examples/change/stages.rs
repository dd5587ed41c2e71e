//! When a change passed which place: the messages that the parts log anyway, with the time at which they did.
//!
//! - Nothing is formatted or written while a change is under way, and no other message is enabled.
//! - A warning of a part is counted: what was measured while something failed is another thing.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_bench::figures::{Figure, Times};
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Level, Metadata, Subscriber};

/// The places in their order: the message, and what the time before it went into.
const PLACES: [(&str, &str); 9] = [
    ("intent read", "hint to the renderer, changes read"),
    ("planned", "rendered and signed"),
    ("rendered", "desired state committed"),
    ("version heard of", "hint to the gateway"),
    ("desired states read", "desired state read"),
    ("update written", "body read, delta made"),
    ("update taken", "over the session, checked by the agent"),
    ("outcome taken", "signed, over the session, verified by the gateway"),
    ("facts written", "outcome committed"),
];
/// The place at which the gateway has the agent's word: where P1 ends.
const ACKED: &str = "outcome taken";

/// Where messages leave their times.
#[derive(Clone, Default)]
pub(crate) struct Stamps(Arc<Mutex<Stamped>>);

#[derive(Default)]
struct Stamped {
    passed: Vec<(usize, Instant)>,
    warnings: Vec<String>,
}

/// How long one stage took.
#[derive(Serialize)]
pub(crate) struct Stage {
    /// What it is.
    stage: &'static str,
    /// How long.
    #[serde(flatten)]
    figure: Figure,
}

/// The stages of many changes.
pub(crate) struct Stages {
    committing: Times,
    between: Vec<Times>,
    acked: Times,
}

impl Stamps {
    /// Listens to every part of this process from now on.
    ///
    /// # Panics
    /// If somebody listens already.
    pub(crate) fn listen() -> Self {
        let stamps = Self::default();
        tracing::subscriber::set_global_default(stamps.clone()).expect("nobody else listens");
        stamps
    }

    fn with<T>(&self, work: impl FnOnce(&mut Stamped) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets what was passed so far.
    pub(crate) fn clear(&self) {
        self.with(|stamped| stamped.passed.clear());
    }

    /// What parts warned of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.with(|stamped| stamped.warnings.clone())
    }
}

impl Stages {
    pub(crate) fn new() -> Self {
        let between = PLACES.iter().map(|_| Times::default()).collect();
        Self { committing: Times::default(), between, acked: Times::default() }
    }

    /// Takes the stamps of one change, which nothing else was under way with; how long it took until the gateway had the agent's word.
    ///
    /// # Panics
    /// If it did not pass a place: then something else is measured than what the stages say.
    pub(crate) fn push(&mut self, stamps: &Stamps, begun: Instant, committed: Duration) -> Duration {
        self.committing.push(committed);
        let passed = stamps.with(|stamped| std::mem::take(&mut stamped.passed));
        let (mut before, mut acked) = (begun + committed, Duration::ZERO);
        for (place, ((word, _), times)) in PLACES.iter().zip(&mut self.between).enumerate() {
            let at = passed.iter().find(|(at, _)| *at == place).map(|(_, at)| *at);
            let at = at.unwrap_or_else(|| panic!("the change passed \"{word}\""));
            // The committer may learn of its commit after others did.
            times.push(at.saturating_duration_since(before));
            before = before.max(at);
            if *word == ACKED {
                acked = at.saturating_duration_since(begun);
                self.acked.push(acked);
            }
        }
        acked
    }

    /// From before the change is asked for until the gateway has verified the agent's word.
    pub(crate) fn acked(&self) -> Figure {
        self.acked.figure()
    }

    pub(crate) fn figures(&self) -> Vec<Stage> {
        let committing = Stage { stage: "intent committed", figure: self.committing.figure() };
        let between = PLACES.iter().zip(&self.between);
        let between = between.map(|((_, stage), times)| Stage { stage, figure: times.figure() });
        std::iter::once(committing).chain(between).collect()
    }
}

impl Subscriber for Stamps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && (metadata.target().starts_with("holdfast") || metadata.target().starts_with("change"))
            && *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let at = Instant::now();
        let mut message = Message::default();
        event.record(&mut message);
        let place = PLACES.iter().position(|(word, _)| *word == message.0);
        if place.is_none() && *event.metadata().level() > Level::WARN {
            return;
        }
        self.with(|stamped| match place {
            Some(place) => stamped.passed.push((place, at)),
            None => stamped.warnings.push(message.0),
        });
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The constant text of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
