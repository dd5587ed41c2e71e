//! The relay's place in the stream of events: where it ends, what is published next and behind what, and what an answer means.
//!
//! - The stream itself says where it ends. What is numbered beyond that is published; a stream that was lost is written again from the first event on.
//! - Nothing counts as published but what the stream said that it has: after an answer that is unclear, or none, it is asked where it ends.
//! - The end of the stream is compared with what was written: a message of another hand stops everything.
//!
//! It reads and publishes nothing: the shell does what [`Relay::poll_next`] says, one thing at a time, and tells what came of it.

use holdfast_model::mutant::{Faults, Mutant};
use holdfast_model::numbers::{AuthorityEpoch, EventSeq};

/// Where an event stands: in which life of the authority, and under which number of that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventPlace {
    /// The life.
    pub epoch: AuthorityEpoch,
    /// The number; zero is before the first.
    pub seq: EventSeq,
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// To read how the stream ends: [`Tail`], then [`Relay::handle_end`].
    FindEnd,
    /// To look whether the stream still is what it was and ends where it did: who has nothing to publish would not be told that it was lost.
    /// [`Relay::handle_looked`].
    Look,
    /// To read numbered events from here on: [`Relay::handle_read`].
    Read(EventPlace),
    /// To publish what was read: [`Relay::handle_published`].
    Publish,
    /// Nothing: the stream holds everything that is numbered.
    Rest,
    /// To begin anew at once, by a new numbering.
    Again,
    /// To begin anew after a while: at once would only spin.
    Later,
}

/// The relay of one term.
#[derive(Clone, Copy, Debug, Default)]
pub struct Relay {
    /// The last event that the stream is known to hold.
    cursor: Option<EventPlace>,
    faults: Faults,
}

impl Relay {
    /// Nothing is known of the stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one seeded fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn with_mutant(self, mutant: Mutant) -> Self {
        Self { faults: Faults::seeded(mutant), ..self }
    }

    /// The last event that the stream is known to hold, by its own word.
    #[must_use]
    pub const fn cursor(&self) -> Option<EventPlace> {
        self.cursor
    }

    /// What is next after a numbering, which ended at `last` and gave so many numbers.
    #[must_use]
    pub fn poll_next(&self, last: EventPlace, count: u64) -> Next {
        match self.cursor {
            None => Next::FindEnd,
            Some(at) if at == last && count > 0 => Next::Rest,
            Some(at) if at == last => Next::Look,
            Some(at) => Next::Read(EventPlace { seq: at.seq.next().unwrap_or(at.seq), ..at }),
        }
    }

    /// How the stream ends was read.
    pub const fn handle_end(&mut self, end: EventPlace) {
        self.cursor = Some(end);
    }

    /// It was looked at: whether it is what it was.
    pub const fn handle_looked(&mut self, is_where_it_was: bool) -> Next {
        if is_where_it_was {
            return Next::Rest;
        }
        self.cursor = None;
        Next::Again
    }

    /// Events were read behind the cursor: whether there were any. `last` is where the numbering ended.
    pub fn handle_read(&mut self, are_some: bool, last: EventPlace) -> Next {
        let Some(at) = self.cursor else { return Next::Again };
        if are_some {
            return Next::Publish;
        }
        if at.epoch >= last.epoch {
            // Beyond all that this database has numbered: it was restored from a backup, and the stream says so.
            self.cursor = None;
            return Next::Later;
        }
        // The end of an epoch: the next one begins at 1.
        self.cursor = at.epoch.next().map(|epoch| EventPlace { epoch, seq: EventSeq::ZERO });
        Next::Again
    }

    /// Events were published, up to `end`: how many of them the stream has for certain, and whether that is all.
    pub fn handle_published(&mut self, end: EventPlace, count: usize, is_complete: bool, last: EventPlace) -> Next {
        // What was stored and what not is the stream's to say.
        self.cursor = (is_complete || self.faults.has(Mutant::CursorAdvanced)).then_some(end);
        if count == 0 {
            return Next::Later;
        }
        // What was committed since the numbering has a wake of its own, which is kept while nobody waits for it.
        if self.cursor == Some(last) { Next::Rest } else { Next::Again }
    }

    /// The stream, or the way to it, is in trouble: nothing of it is known any more.
    pub const fn handle_trouble(&mut self) {
        self.cursor = None;
    }
}

/// The end of the stream as it is read, from an older message to the last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail {
    end: Option<EventPlace>,
}

/// The stream holds what this database never wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign;

impl Tail {
    /// The next message: where it says that it stands, and whether exactly that was written there.
    ///
    /// # Errors
    /// [`Foreign`] if it was not, or does not stand right behind the one before.
    pub fn handle_message(&mut self, at: EventPlace, is_written: bool) -> Result<(), Foreign> {
        if !is_written || self.end.is_some_and(|end| !follows(end, at)) {
            return Err(Foreign);
        }
        self.end = Some(at);
        Ok(())
    }

    /// Where the stream ends; before the first event if it is empty.
    #[must_use]
    pub fn end(self) -> EventPlace {
        self.end.unwrap_or(EventPlace { epoch: AuthorityEpoch::from_raw(1), seq: EventSeq::ZERO })
    }
}

/// Whether an event may stand right behind another in the stream. A new life may be numbered above ones that this database forgot.
fn follows(before: EventPlace, after: EventPlace) -> bool {
    let later_epoch = before.epoch < after.epoch && Some(after.seq) == EventSeq::ZERO.next();
    later_epoch || (before.epoch == after.epoch && before.seq.next() == Some(after.seq))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(epoch: u64, seq: u64) -> EventPlace {
        EventPlace { epoch: AuthorityEpoch::from_raw(epoch), seq: EventSeq::from_raw(seq) }
    }

    #[test]
    fn events_stand_in_their_order_without_a_hole_and_an_epoch_begins_with_the_first() {
        assert!(follows(at(2, 4), at(2, 5)) && follows(at(2, 4), at(3, 1)) && follows(at(2, 4), at(9, 1)));
        for after in [at(2, 4), at(2, 6), at(2, 3), at(3, 2), at(1, 1), at(3, 5)] {
            assert!(!follows(at(2, 4), after), "{after:?}");
        }
    }

    #[test]
    fn a_stream_ends_with_its_last_message_and_one_of_another_hand_stops_everything() {
        let mut tail = Tail::default();
        assert_eq!(tail.end(), at(1, 0));
        assert_eq!([at(1, 7), at(1, 8), at(2, 1)].map(|place| tail.handle_message(place, true)), [Ok(()); 3]);
        assert_eq!(tail.end(), at(2, 1));
        assert_eq!(tail.handle_message(at(2, 3), true), Err(Foreign), "a hole");
        assert_eq!(tail.handle_message(at(2, 2), false), Err(Foreign), "nobody wrote that");
        assert_eq!(tail.handle_message(at(2, 2), true), Ok(()));
    }

    #[test]
    fn what_is_numbered_is_published_behind_the_end_and_a_stream_that_was_lost_is_written_from_the_first_on() {
        let mut relay = Relay::new();
        assert_eq!(relay.poll_next(at(1, 5), 5), Next::FindEnd);
        relay.handle_end(at(1, 2));
        assert_eq!(relay.poll_next(at(1, 5), 0), Next::Read(at(1, 3)));
        assert_eq!(relay.handle_read(true, at(1, 5)), Next::Publish);
        assert_eq!(relay.handle_published(at(1, 4), 2, true, at(1, 5)), Next::Again, "there is more");
        assert_eq!(relay.handle_published(at(1, 5), 1, true, at(1, 5)), Next::Rest);
        assert_eq!((relay.poll_next(at(1, 5), 1), relay.poll_next(at(1, 5), 0)), (Next::Rest, Next::Look));
        assert_eq!((relay.handle_looked(true), relay.cursor()), (Next::Rest, Some(at(1, 5))));
        assert_eq!((relay.handle_looked(false), relay.poll_next(at(1, 5), 0)), (Next::Again, Next::FindEnd));
        relay.handle_end(Tail::default().end());
        assert_eq!(relay.poll_next(at(1, 5), 0), Next::Read(at(1, 1)));
    }

    #[test]
    fn after_an_answer_that_is_unclear_the_stream_is_asked_where_it_ends() {
        for (count, next) in [(0, Next::Later), (2, Next::Again)] {
            let mut relay = Relay::new();
            relay.handle_end(at(1, 2));
            assert_eq!(relay.handle_published(at(1, 5), count, false, at(1, 5)), next);
            assert_eq!((relay.cursor(), relay.poll_next(at(1, 5), 0)), (None, Next::FindEnd));
        }
        let mut relay = Relay::new();
        relay.handle_end(at(1, 2));
        relay.handle_trouble();
        assert_eq!(relay.cursor(), None);
    }

    #[test]
    fn behind_the_end_of_a_life_the_next_begins_and_beyond_all_that_is_numbered_nothing_is_published() {
        let mut relay = Relay::new();
        relay.handle_end(at(1, 9));
        assert_eq!((relay.handle_read(false, at(3, 4)), relay.cursor()), (Next::Again, Some(at(2, 0))));
        assert_eq!((relay.handle_read(false, at(3, 4)), relay.cursor()), (Next::Again, Some(at(3, 0))));
        assert_eq!(relay.poll_next(at(3, 4), 0), Next::Read(at(3, 1)));
        relay.handle_end(at(3, 7));
        assert_eq!((relay.handle_read(false, at(3, 4)), relay.cursor()), (Next::Later, None), "it was restored");
    }

    proptest! {
        /// A stream that takes a batch only behind what it names, and answers as it likes: it is a beginning of the order, each event once, and what the
        /// relay takes it to hold it holds.
        #[test]
        fn the_stream_is_a_beginning_of_the_order_whatever_is_answered(
            steps in prop::collection::vec((1..5_u64, 0..6_usize, any::<bool>(), 0..12_u8), 1..120),
        ) {
            let (mut relay, mut stream, mut numbered) = (Relay::new(), Vec::<u64>::new(), 0);
            for (news, stored, is_answered, lost) in steps {
                numbered += news;
                if lost == 0 {
                    stream.clear();
                }
                for _ in 0..8 {
                    let last = at(1, numbered);
                    match relay.poll_next(last, 0) {
                        Next::FindEnd => {
                            let mut tail = Tail::default();
                            stream.iter().for_each(|seq| tail.handle_message(at(1, *seq), true).expect("it is ours"));
                            relay.handle_end(tail.end());
                        }
                        Next::Look => {
                            let holds = stream.last().copied().unwrap_or(0);
                            if relay.handle_looked(relay.cursor() == Some(at(1, holds))) == Next::Rest {
                                prop_assert_eq!(holds, numbered);
                                break;
                            }
                        }
                        Next::Read(from) => {
                            let events: Vec<u64> = (from.seq.raw()..=numbered).take(5).collect();
                            prop_assert_eq!(relay.handle_read(!events.is_empty(), last), Next::Publish);
                            let fits = stream.last().copied().unwrap_or(0) + 1 == from.seq.raw();
                            let stored = if fits { stored.min(events.len()) } else { 0 };
                            stream.extend(&events[..stored]);
                            let is_complete = is_answered && stored == events.len();
                            let end = at(1, from.seq.raw() + events.len() as u64 - 1);
                            relay.handle_published(end, if is_answered { stored } else { 0 }, is_complete, last);
                            prop_assert!(relay.cursor().is_none_or(|cursor| cursor.seq.raw() == stream.last().copied().unwrap_or(0)));
                        }
                        Next::Publish | Next::Rest | Next::Again | Next::Later => prop_assert!(false, "it is told by answers only"),
                    }
                }
                let order: Vec<u64> = (1..=stream.len() as u64).collect();
                prop_assert_eq!(&stream, &order);
            }
        }
    }
}
