//! The command line's half of the settings: one flag per key, made from the description.

use super::keys::{Config, keys};
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;

/// The settings given as flags; flattened into a binary's arguments by `#[command(flatten)]`.
#[derive(Debug, Clone)]
pub struct ConfigFlags<C> {
    /// The file named by `--config`.
    pub file: Option<PathBuf>,
    /// By key: `database_url_file`, …
    pub values: BTreeMap<String, String>,
    of: PhantomData<fn() -> C>,
}

impl<C> ConfigFlags<C> {
    /// As if these had been given, each by the name of its key.
    #[must_use]
    pub fn of_values(given: &[(&str, &str)]) -> Self {
        let values = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Self { file: None, values, of: PhantomData }
    }
}

impl<C> Default for ConfigFlags<C> {
    fn default() -> Self {
        Self { file: None, values: BTreeMap::new(), of: PhantomData }
    }
}

const FILE: &str = "config";
const HEADING: &str = "Settings (a flag goes before its variable, the variable before the key of the file)";

impl<C: Config> clap::Args for ConfigFlags<C> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE)
            .long(FILE)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help(format!(
                "The TOML file to read [HOLDFAST_CONFIG] [default: /etc/holdfast/{}.toml if it is there]",
                C::SERVICE
            ))
            .help_heading(HEADING);
        keys::<C>().fold(command.arg(file), |command, key| {
            // Twins have a name of their own; there are as many as secrets, made once a process.
            let flag: &'static str = if key.secret { format!("{}-file", key.flag).leak() } else { key.flag };
            let default = key.default.map(|default| format!(" [default: {default}]")).unwrap_or_default();
            let help = format!("{} [{}]{default}", key.help, key.variable());
            command.arg(Arg::new(flag).long(flag).value_name(key.value_name()).help(help).help_heading(HEADING))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Config> FromArgMatches for ConfigFlags<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>(FILE).cloned().or(self.file.take());
        for key in keys::<C>() {
            let flag = if key.secret { format!("{}-file", key.flag) } else { key.flag.to_owned() };
            if let Some(value) = matches.get_one::<String>(&flag) {
                self.values.insert(flag.replace('-', "_"), value.clone());
            }
        }
        Ok(())
    }
}
