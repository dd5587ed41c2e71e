//! A ruleset as nft text: for people and for golden files.
//!
//! - `nft -f` loads it and makes the same table; a kernel test shows that.

use std::fmt;

use super::ruleset::{Chain, Hook, Ruleset, TABLE};

impl fmt::Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table inet {TABLE} {{")?;
        for (name, members) in &self.sets {
            write!(f, "\tset {name} {{ type {}; flags interval;", members.type_word())?;
            if !members.is_empty() {
                write!(f, " elements = {{ {members} }}")?;
            }
            writeln!(f, " }}")?;
        }
        self.chains.iter().try_for_each(|chain| write!(f, "{chain}"))?;
        writeln!(f, "}}")
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\tchain {} {{", self.name)?;
        if let Some(hook) = self.hook {
            let policy = if self.drops { "drop" } else { "accept" };
            let priority = Hook::PRIORITY;
            writeln!(f, "\t\ttype filter hook {} priority filter + {priority}; policy {policy};", hook.word())?;
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "\t\t{rule}"))?;
        writeln!(f, "\t}}")
    }
}
