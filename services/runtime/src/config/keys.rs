//! What a binary says of its settings, beside the type that holds them.

use serde::de::{DeserializeOwned, Deserializer, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use std::collections::BTreeSet;

/// One setting, described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its flag without the dashes, such as `database-url`; the key in a file and the variable follow from it.
    pub flag: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
    /// Whether it is never shown and has a `_file` twin.
    pub secret: bool,
    /// What it is if nobody sets it.
    pub default: Option<&'static str>,
}

impl Key {
    /// A setting that may be shown.
    #[must_use]
    pub const fn plain(flag: &'static str, help: &'static str) -> Self {
        Self { flag, help, secret: false, default: None }
    }

    /// A setting that may not.
    #[must_use]
    pub const fn secret(flag: &'static str, help: &'static str) -> Self {
        Self { flag, help, secret: true, default: None }
    }

    /// The same with what it is if nobody sets it; a test of every binary holds this to the type.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// Its variable, such as `HOLDFAST_DATABASE_URL`; of a secret the one that names its file.
    #[must_use]
    pub fn variable(&self) -> String {
        let file = if self.secret { "_FILE" } else { "" };
        format!("HOLDFAST_{}{file}", self.name().to_uppercase())
    }

    /// What a value of it is.
    #[must_use]
    pub fn value_name(&self) -> &'static str {
        match self.flag.rsplit('-').next() {
            _ if self.secret => "FILE",
            Some("listen") => "ADDRESS:PORT",
            Some("url") => "URL",
            Some("identity" | "data") => "FOLDER",
            Some("interval") => "DURATION",
            Some(_) | None => "VALUE",
        }
    }

    /// The key in a file, such as `database_url`.
    #[must_use]
    pub fn name(&self) -> String {
        self.flag.replace('-', "_")
    }
}

/// The settings that every service has; a `Config` of a service has a field for each.
pub const COMMON: &[Key] = &[
    Key::plain("log", "Which log lines are written, such as `info` or `info,holdfast_gateway=debug`").or("info"),
    Key::plain("log-format", "How log lines look: `text` or `json` (default: text on a terminal)"),
];

/// The setting of the admin listener, whose default is each service's own.
#[must_use]
pub const fn admin_listen(default: &'static str) -> Key {
    Key::plain("admin-listen", "Where /livez, /readyz, /metrics and /version are served").or(default)
}

/// The settings of one binary: a struct with one field per key.
pub trait Config: Serialize + DeserializeOwned {
    /// The service's name: its own variables are `HOLDFAST_<SERVICE>_…`, its file is `/etc/holdfast/<service>.toml`.
    const SERVICE: &'static str;
    /// Every field, described, in groups.
    const KEYS: &'static [&'static [Key]];
}

pub(super) fn keys<C: Config>() -> impl Iterator<Item = &'static Key> {
    C::KEYS.iter().copied().flatten()
}

/// What the type and its description do not agree on; a test of every binary wants it empty.
#[must_use]
pub fn undescribed<C: Config>() -> Vec<String> {
    let mut fields = Fields::default();
    // It fails on purpose as soon as it has seen the names.
    let _refused = C::deserialize(&mut fields);
    let fields: BTreeSet<String> = fields.0.iter().map(|&name| name.to_owned()).collect();
    let described: BTreeSet<String> = keys::<C>().map(Key::name).collect();
    fields.symmetric_difference(&described).cloned().collect()
}

/// Where the described defaults are not those of the type, when the settings that have none are given; a test of every binary wants it empty.
///
/// # Errors
/// The settings that were given are not enough.
pub fn misdescribed_defaults<C: Config>(given: &[(&str, &str)]) -> Result<Vec<String>, super::Error> {
    let flags = super::ConfigFlags::<C>::of_values(given);
    let nowhere = std::path::PathBuf::from("/nonexistent/holdfast.toml");
    let loaded = super::load(super::Sources { flags, variables: Vec::new(), default_file: nowhere })?;
    let actual = serde_json::to_value(&loaded.config).unwrap_or_default();
    // An empty text and nothing at all are the same to whoever sets it.
    let text = |value: &serde_json::Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (!value.is_null() && !text.is_empty()).then_some(text)
    };
    let differs = |key: &&'static Key| {
        let is_given = given.iter().any(|(name, _)| *name == key.name());
        let is = actual.get(key.name()).and_then(text);
        !is_given && !key.secret && is.as_deref() != key.default
    };
    Ok(keys::<C>().filter(differs).map(|key| format!("{}: {:?}", key.name(), actual.get(key.name()))).collect())
}

/// A deserializer that only listens to which fields a struct asks for.
#[derive(Default)]
struct Fields(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut Fields {
    type Error = serde::de::value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0 = fields;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom("only the names of the fields were asked for"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
