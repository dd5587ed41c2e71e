//! Answers on stdout: tables for people, JSON, YAML and names for programs.
//!
//! JSON and YAML are what the API said, field by field; a table shows the part that people look for.

use std::io::Write as _;

use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::error::Error;

/// How an answer is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// What people look for.
    Table,
    /// The same with more columns.
    Wide,
    /// All of it, as JSON.
    Json,
    /// All of it, as YAML.
    Yaml,
    /// Names alone, one a line.
    Name,
}

impl Format {
    /// Whether tables have more columns.
    pub(crate) const fn is_wide(self) -> bool {
        matches!(self, Self::Wide)
    }
}

/// Prints one line.
pub(crate) fn line(text: &str) -> Result<(), Error> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

/// Says something to whoever watches; with stderr gone there is nobody.
pub(crate) fn word(text: &str) {
    let _told = writeln!(std::io::stderr().lock(), "{text}");
}

/// An answer that can be shown in every form.
pub(crate) struct Answer<'a, T> {
    /// What the API said.
    pub(crate) value: &'a T,
    /// Names, for `-o name`.
    pub(crate) names: Vec<String>,
    /// For people.
    pub(crate) text: String,
}

impl<T: Serialize> Answer<'_, T> {
    /// Shows it.
    pub(crate) fn show(&self, format: Format) -> Result<(), Error> {
        match format {
            Format::Json => line(&serde_json::to_string_pretty(self.value)?),
            Format::Yaml => line(yaml(self.value)?.trim_end()),
            Format::Name => self.names.iter().try_for_each(|name| line(name)),
            Format::Table | Format::Wide if self.text.is_empty() => Ok(()),
            Format::Table | Format::Wide => line(self.text.trim_end()),
        }
    }
}

/// A value as YAML.
pub(crate) fn yaml<T: Serialize>(value: &T) -> Result<String, Error> {
    // By way of JSON, so that both have the same fields in the same order.
    serde_saphyr::to_string(&serde_json::to_value(value)?).map_err(Error::Yaml)
}

/// Rows under a header, columns two spaces apart.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header);
    for row in rows {
        table.add_row(row.map(|cell| one_line(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// What others wrote may hold anything: it stays within its cell.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A value that may be absent.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Labels as `a=b,c=d`.
pub(crate) fn labels(labels: &std::collections::BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "-".to_owned() } else { pairs.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_aligned_columns_and_keeps_control_characters_out() {
        let rows = vec![["web".to_owned(), "a\u{1b}[31mb\nc".to_owned()], ["database".to_owned(), "x".to_owned()]];
        assert_eq!(table(["NAME", "DETAIL"], rows), "NAME      DETAIL\nweb       a [31mb c\ndatabase  x");
    }

    #[test]
    fn yaml_has_the_fields_of_json() {
        let value = serde_json::json!({ "b": 1, "a": ["x"] });
        assert_eq!(yaml(&value).expect("YAML").trim_end(), "a:\n- x\nb: 1");
    }
}
