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
}

impl Key {
    /// A setting that may be shown.
    #[must_use]
    pub const fn plain(flag: &'static str, help: &'static str) -> Self {
        Self { flag, help, secret: false }
    }

    /// A setting that may not.
    #[must_use]
    pub const fn secret(flag: &'static str, help: &'static str) -> Self {
        Self { flag, help, secret: true }
    }

    /// The key in a file, such as `database_url`.
    #[must_use]
    pub fn name(&self) -> String {
        self.flag.replace('-', "_")
    }
}

/// The settings that every service has; a `Config` of a service has a field for each.
pub const COMMON: &[Key] = &[
    Key::plain("log", "Which log lines are written, such as `info` or `info,holdfast_gateway=debug`"),
    Key::plain("log-format", "How log lines look: `text` or `json` (default: text on a terminal)"),
    Key::plain("admin-listen", "Where /livez, /readyz, /metrics and /version are served"),
];

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
