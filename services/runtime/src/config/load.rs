//! Reads every place of settings, lays them over each other and makes the binary's type of them.

use super::flags::ConfigFlags;
use super::keys::{Config, Key, keys};
use crate::exit::{Exit, Fatal};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "HOLDFAST_";
const FILE_VARIABLE: &str = "HOLDFAST_CONFIG";
const TWIN: &str = "_file";

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nobody set it.
    Default,
    /// A TOML file.
    File(PathBuf),
    /// A variable.
    Variable(String),
    /// A flag.
    Flag(String),
    /// A secret's file, named in another place.
    Secret(PathBuf, Box<Place>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Secret(path, named) => write!(f, "file {} (named by {named})", path.display()),
        }
    }
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is not there or cannot be read.
    #[error("cannot read {} (named by {place})", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Who named it.
        place: Place,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is no TOML. The line is not repeated: it may hold a secret.
    #[error("{} is no TOML: line {line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Keys that nobody knows.
    #[error("unknown settings: {}", list(keys))]
    Unknown {
        /// Each with its place and the key that may have been meant.
        keys: Vec<UnknownKey>,
    },
    /// A secret is given twice in one place.
    #[error("`{key}` is given both as a value and as a file, by {place}")]
    Both {
        /// The key.
        key: String,
        /// The place.
        place: Place,
    },
    /// A variable is not UTF-8.
    #[error("variable {name} is not UTF-8")]
    NotText {
        /// Its name.
        name: String,
    },
    /// A key without a default is set nowhere.
    #[error("`{key}` is set nowhere: give {flag}, variable {variable}, or the key in a file")]
    Missing {
        /// The key.
        key: String,
        /// Its flag.
        flag: String,
        /// Its variable.
        variable: String,
    },
    /// A value is not one.
    #[error("`{key}` cannot be used ({place}): {reason}")]
    Value {
        /// The key.
        key: String,
        /// Where it was set.
        place: Place,
        /// Why; for a secret without the value.
        reason: String,
    },
}

impl Fatal for Error {
    fn exit(&self) -> Exit {
        match self {
            Self::Read { .. }
            | Self::Syntax { .. }
            | Self::Unknown { .. }
            | Self::Both { .. }
            | Self::NotText { .. }
            | Self::Missing { .. }
            | Self::Value { .. } => Exit::Config,
        }
    }

    fn rule(&self) -> &'static str {
        match self {
            Self::Read { .. } => "settings-unreadable",
            Self::Syntax { .. } => "settings-syntax",
            Self::Unknown { .. } => "setting-unknown",
            Self::Both { .. } => "setting-twice",
            Self::NotText { .. } => "setting-not-text",
            Self::Missing { .. } => "setting-missing",
            Self::Value { .. } => "setting-value",
        }
    }
}

/// A key that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnknownKey {
    /// The key, as it was written.
    pub key: String,
    /// Where.
    pub place: Place,
    /// The known key that it is close to.
    pub near: Option<String>,
}

fn list(keys: &[UnknownKey]) -> String {
    let one = |unknown: &UnknownKey| {
        let near = unknown.near.as_ref().map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        format!("`{}` ({}{near})", unknown.key, unknown.place)
    };
    keys.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Everything outside of the program that settings are read from.
#[derive(Debug, Clone)]
pub struct Sources<C> {
    /// The command line.
    pub flags: ConfigFlags<C>,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The file that is read if it is there and no other was named.
    pub default_file: PathBuf,
}

impl<C: Config> Sources<C> {
    /// The process's own environment and `/etc/holdfast/<service>.toml`.
    #[must_use]
    pub fn of_process(flags: ConfigFlags<C>) -> Self {
        let default_file = PathBuf::from(format!("/etc/holdfast/{}.toml", C::SERVICE));
        Self { flags, variables: std::env::vars_os().collect(), default_file }
    }
}

/// Settings and where they came from.
#[derive(Debug, Clone)]
pub struct Loaded<C> {
    /// The settings.
    pub config: C,
    /// The place of each key that was set somewhere.
    pub places: BTreeMap<String, Place>,
}

/// Reads and joins all sources.
///
/// # Errors
/// The first [`Error`], except that unknown keys are collected from all places.
pub fn load<C: Config>(sources: Sources<C>) -> Result<Loaded<C>, Error> {
    let known = Known::of::<C>();
    let mut unknown = Vec::new();
    let mut layers = vec![file_layer(&sources, &known, &mut unknown)?];
    layers.extend(variable_layers(&sources.variables, &known, &mut unknown)?);
    layers.push(
        sources
            .flags
            .values
            .iter()
            .map(|(key, value)| {
                (key.clone(), (Value::from(value.clone()), Place::Flag(format!("--{}", key.replace('_', "-")))))
            })
            .collect(),
    );
    if !unknown.is_empty() {
        unknown.sort();
        return Err(Error::Unknown { keys: unknown });
    }
    let mut places = BTreeMap::new();
    let mut figment = Figment::new();
    for layer in layers {
        for (key, (value, place)) in read_twins(layer, &known)? {
            figment = figment.merge(Entry { key: key.clone(), value });
            places.insert(key, place);
        }
    }
    let config = figment.extract_lossy().map_err(|error| describe(error, &places, &known))?;
    Ok(Loaded { config, places })
}

type Layer = BTreeMap<String, (Value, Place)>;

struct Known {
    service: &'static str,
    plain: BTreeSet<String>,
    secret: BTreeSet<String>,
}

impl Known {
    fn of<C: Config>() -> Self {
        let (secret, plain): (Vec<&Key>, Vec<&Key>) = keys::<C>().partition(|key| key.secret);
        let names = |keys: Vec<&Key>| keys.into_iter().map(Key::name).collect();
        Self { service: C::SERVICE, plain: names(plain), secret: names(secret) }
    }

    /// Also true of a secret's twin.
    fn holds(&self, key: &str) -> bool {
        self.plain.contains(key)
            || self.secret.contains(key)
            || key.strip_suffix(TWIN).is_some_and(|key| self.secret.contains(key))
    }

    fn near(&self, key: &str) -> Option<String> {
        let twins = self.secret.iter().map(|key| format!("{key}{TWIN}"));
        let all = self.plain.iter().chain(&self.secret).cloned().chain(twins);
        all.map(|known| (slips(&known, key), known)).filter(|(slips, _)| *slips <= 2).min().map(|(_, known)| known)
    }
}

fn file_layer<C: Config>(sources: &Sources<C>, known: &Known, unknown: &mut Vec<UnknownKey>) -> Result<Layer, Error> {
    let variable = sources.variables.iter().find(|(name, value)| name == FILE_VARIABLE && !value.is_empty());
    let (path, named) = match (&sources.flags.file, variable) {
        (Some(path), _) => (path.clone(), Some(Place::Flag("--config".to_owned()))),
        (None, Some((_, path))) => (path.into(), Some(Place::Variable(FILE_VARIABLE.to_owned()))),
        (None, None) => (sources.default_file.clone(), None),
    };
    let text = match (fs::read_to_string(&path), named) {
        (Ok(text), _) => text,
        (Err(error), None) if error.kind() == io::ErrorKind::NotFound => return Ok(Layer::new()),
        (Err(source), named) => {
            return Err(Error::Read { path, place: named.unwrap_or(Place::Default), source });
        }
    };
    let table: toml::Table = toml::from_str(&text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
        Error::Syntax { path: path.clone(), line, message: error.message().to_owned() }
    })?;
    let place = Place::File(path);
    let mut layer = Layer::new();
    for (key, value) in table {
        if known.holds(&key) {
            let value = Value::serialize(value).map_err(|_| unusable(&key, &place))?;
            layer.insert(key, (value, place.clone()));
        } else {
            unknown.push(UnknownKey { near: known.near(&key), key, place: place.clone() });
        }
    }
    Ok(layer)
}

fn unusable(key: &str, place: &Place) -> Error {
    Error::Value { key: key.to_owned(), place: place.clone(), reason: "the value is of no known type".to_owned() }
}

/// The shared variables, and over them the service's own.
fn variable_layers(
    variables: &[(OsString, OsString)],
    known: &Known,
    unknown: &mut Vec<UnknownKey>,
) -> Result<[Layer; 2], Error> {
    let own_prefix = format!("{PREFIX}{}_", known.service.to_uppercase().replace('-', "_"));
    let (mut shared, mut own) = (Layer::new(), Layer::new());
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX) && *name != FILE_VARIABLE) else {
            continue;
        };
        let place = Place::Variable(name.to_owned());
        let key = |prefix: &str| name.strip_prefix(prefix).map(str::to_lowercase);
        let whole = key(PREFIX).filter(|key| known.holds(key));
        let (layer, key) = match (whole, key(&own_prefix)) {
            (Some(key), _) => (&mut shared, key),
            (None, Some(key)) if known.holds(&key) => (&mut own, key),
            (None, own_key) => {
                let near = known.near(own_key.as_deref().or(key(PREFIX).as_deref()).unwrap_or_default());
                if own_key.is_some() || near.is_some() {
                    unknown.push(UnknownKey { key: name.to_owned(), place, near });
                }
                continue;
            }
        };
        let text = value.to_str().ok_or_else(|| Error::NotText { name: name.to_owned() })?;
        if !text.is_empty() {
            layer.insert(key, (Value::from(text), place));
        }
    }
    Ok([shared, own])
}

/// Replaces each twin of one place by the content of its file.
fn read_twins(mut layer: Layer, known: &Known) -> Result<Layer, Error> {
    for key in &known.secret {
        let Some((value, place)) = layer.remove(&format!("{key}{TWIN}")) else { continue };
        if layer.contains_key(key) {
            return Err(Error::Both { key: key.clone(), place });
        }
        let path = value.into_string().map(PathBuf::from).ok_or_else(|| unusable(&format!("{key}{TWIN}"), &place))?;
        let text = read_secret(&path, &place)?;
        layer.insert(key.clone(), (Value::from(text), Place::Secret(path, Box::new(place))));
    }
    Ok(layer)
}

fn read_secret(path: &Path, place: &Place) -> Result<String, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read {
        path: path.to_owned(),
        place: place.clone(),
        source,
    })?;
    // The line's end belongs to the file, any other white space to the secret.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// One value, as figment takes it.
struct Entry {
    key: String,
    value: Value,
}

impl Provider for Entry {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.key.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(Dict::from([(self.key.clone(), self.value.clone())])))
    }
}

fn describe(error: figment::Error, places: &BTreeMap<String, Place>, known: &Known) -> Error {
    if let figment::error::Kind::MissingField(key) = &error.kind {
        return Error::Missing {
            flag: format!("--{}{}", key.replace('_', "-"), if known.secret.contains(&**key) { "-file" } else { "" }),
            variable: format!("{PREFIX}{}", key.to_uppercase()),
            key: key.to_string(),
        };
    }
    let key = error.path.first().cloned().unwrap_or_default();
    let place = places.get(&key).cloned().unwrap_or(Place::Default);
    let reason =
        if known.secret.contains(&key) { "the value is not a text".to_owned() } else { error.kind.to_string() };
    Error::Value { key, place, reason }
}

/// The number of characters that differ (Levenshtein): keys are short, so the plain table is enough.
fn slips(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (cell, b) in row.iter_mut().skip(1).zip(&two) {
            let changed = diagonal + usize::from(a != *b);
            diagonal = *cell;
            left = changed.min(left + 1).min(diagonal + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}
