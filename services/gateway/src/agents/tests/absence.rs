//! What the door's log has of a database that is away.

use std::sync::Mutex;

use holdfast_model::numbers::SessionEpoch;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Level, Metadata, Subscriber};

use super::*;

#[tokio::test]
async fn an_absence_of_the_database_in_which_hosts_only_say_that_they_are_there_is_told_once_and_so_is_its_end() {
    let lines = Lines::default();
    let _heard = tracing::subscriber::set_default(lines.clone());
    let estate = Estate::start().await;
    let mut agent = estate.agent(1).await;
    agent.converge(4).await;
    estate.facts_until(|facts| count(facts, |seen| matches!(seen, Seen::Outcome(_))) == 4).await;
    let said = |level: Level| lines.of(level, "holdfast_gateway::agents::recorder");
    let failed_again = || said(Level::DEBUG).iter().filter(|line| line.contains("cannot be written yet")).count();
    // As often as a fleet says that it is there.
    let until = async |done: &dyn Fn() -> bool| {
        let hear = async {
            while !done() {
                estate.door.recorder().put_heard(agent.host, SessionEpoch::from_raw(1));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let heard = tokio::time::timeout(DEADLINE, hear).await;
        assert!(heard.is_ok(), "{:?}", lines.of(Level::DEBUG, "holdfast_gateway::agents::recorder"));
    };

    for absence in 1..=2 {
        let before = failed_again();
        estate.memory.set_away(true);
        until(&|| failed_again() >= before + 3).await;
        assert_eq!(said(Level::WARN).len(), absence, "{:?}", said(Level::WARN));
        estate.memory.set_away(false);
        until(&|| said(Level::INFO).len() == absence).await;
    }
    let (warned, told) = (said(Level::WARN), said(Level::INFO));
    assert!(warned.iter().all(|line| line.contains("facts cannot be written; trying again")), "{warned:?}");
    assert!(told.iter().all(|line| line.contains("facts are written again")), "{told:?}");
    assert_eq!(estate.door.sessions(), 1);
}

/// Every line of this thread's log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String, String)>>>);

impl Lines {
    /// Those of a level that a module said.
    fn of(&self, level: Level, module: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let of = lines.iter().filter(|(at, from, _)| *at == level && from == module);
        of.map(|(.., text)| text.clone()).collect()
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("holdfast_gateway")
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let (level, from) = (*event.metadata().level(), event.metadata().target().to_owned());
        self.0.lock().unwrap().push((level, from, text.0));
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}
