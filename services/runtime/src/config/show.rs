//! `config show --origin`: every setting in force, as TOML, with its place beside it.

use super::keys::{Config, keys};
use super::load::{Loaded, Place};
use super::secret::REDACTED;

/// Whether places are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Values alone.
    Hidden,
    /// Each value's place in a comment.
    Shown,
}

impl<C: Config> Loaded<C> {
    /// The settings in force as TOML text, secrets redacted; a key without a value is a comment.
    ///
    /// # Errors
    /// What serde says of a type that has no TOML form.
    pub fn show(&self, origin: Origin) -> Result<String, toml::ser::Error> {
        let table = toml::Table::try_from(&self.config)?;
        let mut text = String::new();
        for key in keys::<C>() {
            let name = key.name();
            let place = self.places.get(&name).unwrap_or(&Place::Default);
            let line = match table.get(&name) {
                // Redacted here too, should a field's type forget it.
                Some(_) if key.secret => format!("{name} = \"{REDACTED}\""),
                Some(value) => format!("{name} = {value}"),
                None => format!("# {name} is not set"),
            };
            text += &line;
            if origin == Origin::Shown {
                text += &format!("  # {place}");
            }
            text.push('\n');
        }
        Ok(text)
    }
}
