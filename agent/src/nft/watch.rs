//! The kernel's own notices of changes to our table, with who wrote.
//!
//! - A lost notice counts as one that names our table: what nobody saw is read.

use super::attr::{Message, number};
use super::link::{Error, Heard, Link};
use super::numbers as n;
use crate::plan::TABLE;

/// The group of nf_tables (`NFNLGRP_NFTABLES`), as a bit.
const GROUP: u32 = 1 << 6;
/// `NFTA_GEN_PROC_PID` and `NFTA_GEN_PROC_NAME`.
const WRITER_PID: u16 = 2;
const WRITER_NAME: u16 = 3;

/// Something happened to the ruleset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Somebody changed our table, perhaps this agent itself: the generation tells.
    Touched {
        /// Which process.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// The kernel could not keep all notices for us.
    Lost,
    /// Nothing happened for a while.
    Quiet,
}

/// A socket that only listens.
pub struct Watch {
    link: Link,
    touched: bool,
}

impl Watch {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`Error`] if there is no netlink socket to be had.
    pub fn open() -> Result<Self, Error> {
        #[cfg(feature = "test-hooks")]
        if super::hook::is_deaf() {
            return Err(Error::Silent);
        }
        Ok(Self { link: Link::open(GROUP)?, touched: false })
    }

    /// Waits, at most ten seconds, for a notice that our table was changed.
    ///
    /// # Errors
    /// [`Error`] if the socket fails.
    pub fn wait(&mut self) -> Result<Notice, Error> {
        loop {
            let (mut notice, touched) = (None, &mut self.touched);
            let heard = self.link.listen(|message| {
                if let Some((pid, name)) = ends_transaction(message) {
                    if *touched {
                        notice = Some(Notice::Touched { pid, name });
                    }
                    *touched = false;
                } else if names_our_table(message) {
                    *touched = true;
                }
            })?;
            #[cfg(feature = "test-hooks")]
            if super::hook::is_deaf() {
                return Err(Error::Silent);
            }
            match (heard, notice) {
                (_, Some(notice)) => return Ok(notice),
                (Heard::Lost, None) => return Ok(Notice::Lost),
                (Heard::Nothing, None) => return Ok(Notice::Quiet),
                (Heard::Something, None) => {}
            }
        }
    }
}

/// The writer, if a message closes a transaction.
fn ends_transaction(message: &Message<'_>) -> Option<(u32, String)> {
    if message.kind != n::SUBSYSTEM << 8 | n::NEW_GENERATION {
        return None;
    }
    let attributes = message.attributes();
    let pid = attributes.find(WRITER_PID).ok().flatten().and_then(|attribute| attribute.u32().ok()).unwrap_or(0);
    let name = attributes.find(WRITER_NAME).ok().flatten();
    // A process may call itself by any bytes.
    let name = name.map_or(&[][..], |attribute| attribute.value.split(|byte| *byte == 0).next().unwrap_or_default());
    Some((pid, String::from_utf8_lossy(name).into_owned()))
}

/// Tables, chains, rules, sets and elements all name their table in attribute 1.
fn names_our_table(message: &Message<'_>) -> bool {
    let family = number::<1>(message.payload, 0).map(|[family]| family);
    let table = message.attributes().find(n::TABLE_NAME).ok().flatten();
    message.kind >> 8 == n::SUBSYSTEM
        && family == Some(n::INET)
        && table.is_some_and(|attribute| attribute.text() == Ok(TABLE))
}
