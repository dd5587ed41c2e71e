//! Every rule of the settings, with a made environment and made files.

use super::*;
use crate::exit::Fatal as _;
use crate::log::LogFormat;
use clap::Parser;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Settings {
    #[serde(default = "mk_log")]
    log: String,
    log_format: Option<LogFormat>,
    #[serde(default = "mk_listen")]
    admin_listen: SocketAddr,
    database_url: Secret,
    #[serde(default = "mk_wait")]
    hello_timeout: Span,
    #[serde(default)]
    sessions_max: Option<u32>,
    #[serde(default)]
    drain: bool,
}

impl Config for Settings {
    const SERVICE: &'static str = "gateway";
    const KEYS: &'static [&'static [Key]] = &[
        COMMON,
        &[
            admin_listen("127.0.0.1:9"),
            Key::secret("database-url", "The database"),
            Key::plain("hello-timeout", "How long a host may take to say who it is"),
            Key::plain("sessions-max", "How many sessions are held"),
            Key::plain("drain", "Whether to drain"),
        ],
    ];
}

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    config: ConfigFlags<Settings>,
}

#[test]
fn every_field_is_described_and_every_description_has_a_field() {
    assert_eq!(undescribed::<Settings>(), Vec::<String>::new());
}

#[test]
fn flag_goes_before_own_variable_before_shared_one_before_file_before_default() {
    let at = Bench::new("database_url = \"postgres://f\"\nhello_timeout = \"1s\"");
    let show = |flags: &[&str], variables: &[(&str, &str)]| {
        let loaded = at.load(flags, variables).unwrap();
        (loaded.config.hello_timeout.to_string(), loaded.places.get("hello_timeout").map(ToString::to_string))
    };
    let shared = ("HOLDFAST_HELLO_TIMEOUT", "2s");
    let own = ("HOLDFAST_GATEWAY_HELLO_TIMEOUT", "3s");
    assert_eq!(show(&["--hello-timeout", "4s"], &[shared, own]), ("4s".into(), Some("flag --hello-timeout".into())));
    assert_eq!(show(&[], &[own, shared]), ("3s".into(), Some("variable HOLDFAST_GATEWAY_HELLO_TIMEOUT".into())));
    assert_eq!(show(&[], &[shared]), ("2s".into(), Some("variable HOLDFAST_HELLO_TIMEOUT".into())));
    assert_eq!(show(&[], &[]), ("1s".into(), Some(format!("file {}", at.file.display()))));
    let at = Bench::new("database_url = \"x\"");
    assert_eq!(at.load(&[], &[]).unwrap().config.hello_timeout.to_string(), "30s");
}

#[test]
fn variables_become_numbers_switches_and_texts_as_their_field_wants() {
    let at = Bench::new("");
    let variables = [
        ("HOLDFAST_DATABASE_URL", "12345"),
        ("HOLDFAST_SESSIONS_MAX", "7"),
        ("HOLDFAST_DRAIN", "true"),
        ("HOLDFAST_ADMIN_LISTEN", "[::1]:9"),
        ("HOLDFAST_LOG_FORMAT", "json"),
        ("HOLDFAST_LOG", ""),
    ];
    let config = at.load(&[], &variables).unwrap().config;
    assert_eq!(config.database_url.reveal(), "12345");
    assert_eq!((config.sessions_max, config.drain, config.log_format), (Some(7), true, Some(LogFormat::Json)));
    assert_eq!(config.admin_listen, "[::1]:9".parse().unwrap());
    assert_eq!(config.log, "info", "an empty variable is an absent one");
}

#[test]
fn unknown_keys_of_all_places_are_refused_at_once_with_name_and_place() {
    let at = Bench::new("database_url = \"x\"\nhello_timeot = \"1s\"\n[tls]\nx = 1");
    let error = at.load(&[], &[("HOLDFAST_GATEWAY_NONSENSE", "1"), ("HOLDFAST_DATABSE_URL", "x")]).unwrap_err();
    let text = error.to_string();
    for part in [
        "`hello_timeot` (file ",
        "did you mean `hello_timeout`?",
        "`tls` (file ",
        "`HOLDFAST_GATEWAY_NONSENSE` (variable ",
        "`HOLDFAST_DATABSE_URL` (variable ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains(&at.file.display().to_string()));
    assert_eq!(error.exit(), crate::Exit::Config);
}

#[test]
fn variables_of_other_programs_are_left_alone() {
    let at = Bench::new("database_url = \"x\"");
    let others = [("HOLDFAST_TOKEN", "t"), ("HOLDFAST_API", "u"), ("HOLDFAST_AGENT_STATE", "s"), ("PATH", "p")];
    assert!(at.load(&[], &others).is_ok());
}

#[test]
fn twin_of_a_secret_is_read_from_every_place_and_never_beside_the_value() {
    let at = Bench::new("database_url = \"postgres://low\"");
    let secret = at.folder.path().join("url");
    std::fs::write(&secret, "postgres://u:p w@h \r\n").unwrap();
    let path = secret.to_str().unwrap();
    let by_flag = at.load(&["--database-url-file", path], &[]).unwrap();
    assert_eq!(by_flag.config.database_url.reveal(), "postgres://u:p w@h ", "only the line's end is cut");
    let by_variable = at.load(&[], &[("HOLDFAST_DATABASE_URL_FILE", path)]).unwrap();
    assert_eq!(
        by_variable.places["database_url"].to_string(),
        format!("file {path} (named by variable HOLDFAST_DATABASE_URL_FILE)")
    );
    let both = [("HOLDFAST_DATABASE_URL_FILE", path), ("HOLDFAST_DATABASE_URL", "x")];
    assert!(matches!(at.load(&[], &both), Err(Error::Both { key, .. }) if key == "database_url"));
    let gone = at.load(&["--database-url-file", "/nonexistent/url"], &[]).unwrap_err();
    assert!(matches!(gone, Error::Read { path, .. } if path == Path::new("/nonexistent/url")));
    assert!(Line::try_parse_from(["x", "--database-url", "x"]).is_err(), "no secret on the command line");
}

#[test]
fn named_file_must_be_there_and_the_usual_one_need_not() {
    let at = Bench::new("");
    let variables = [("HOLDFAST_DATABASE_URL", "x")];
    let gone = at.load(&["--config", "/nonexistent/x.toml"], &variables).unwrap_err();
    assert!(gone.to_string().contains("/nonexistent/x.toml (named by flag --config)"), "{gone}");
    let gone = at.load_from(&[], &[variables[0], ("HOLDFAST_CONFIG", "/nonexistent/y.toml")]).unwrap_err();
    assert!(matches!(gone, Error::Read { place: Place::Variable(_), .. }));
    assert!(at.load_from(&[], &variables).is_ok());
}

#[test]
fn missing_key_says_every_way_to_give_it() {
    let error = Bench::new("").load(&[], &[]).unwrap_err();
    let text =
        "`database_url` is set nowhere: give --database-url-file, variable HOLDFAST_DATABASE_URL, or the key in a file";
    assert_eq!(error.to_string(), text);
}

#[test]
fn bad_value_is_named_with_its_place_and_reason() {
    let at = Bench::new("database_url = \"x\"");
    let text = at.load(&["--hello-timeout", "30"], &[]).unwrap_err().to_string();
    assert!(text.starts_with("`hello_timeout` cannot be used (flag --hello-timeout): `30` is no duration"), "{text}");
    let text = at.load(&[], &[("HOLDFAST_SESSIONS_MAX", "-1")]).unwrap_err().to_string();
    assert!(text.starts_with("`sessions_max` cannot be used (variable HOLDFAST_SESSIONS_MAX): "), "{text}");
}

#[test]
fn secret_shows_in_no_output_and_in_no_error() {
    let canary = "canary-secret";
    let at = Bench::new(&format!("database_url = \"{canary}\""));
    let loaded = at.load(&["--hello-timeout", "5s"], &[]).unwrap();
    let shown = loaded.show(Origin::Shown).unwrap();
    assert!(shown.contains("database_url = \"[redacted]\"  # file "), "{shown}");
    assert!(shown.contains("hello_timeout = \"5s\"  # flag --hello-timeout"), "{shown}");
    assert!(shown.contains("# sessions_max is not set  # default"), "{shown}");
    assert!(!format!("{loaded:?} {shown}").contains(canary));
    assert!(loaded.show(Origin::Hidden).unwrap().parse::<toml::Table>().is_ok());
    for text in [
        format!("database_url = [\"{canary}\"]"),
        format!("database_url = \"{canary}"),
        format!("database_url_file = [\"{canary}\"]"),
    ] {
        let error = Bench::new(&text).load(&[], &[]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(canary), "{error}");
    }
}

#[test]
fn broken_file_is_named_with_its_line() {
    let error = Bench::new("log = \"info\"\n\nhello_timeout = = 3").load(&[], &[]).unwrap_err();
    assert!(matches!(error, Error::Syntax { line: 3, .. }), "{error}");
}

struct Bench {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Bench {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        Self { folder, file }
    }

    /// With the bench's file as the usual one.
    fn load(&self, flags: &[&str], variables: &[(&str, &str)]) -> Result<Loaded<Settings>, Error> {
        self.load_with(self.file.clone(), flags, variables)
    }

    /// With no file in the usual place.
    fn load_from(&self, flags: &[&str], variables: &[(&str, &str)]) -> Result<Loaded<Settings>, Error> {
        self.load_with(self.folder.path().join("absent.toml"), flags, variables)
    }

    fn load_with(
        &self,
        default_file: PathBuf,
        flags: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Loaded<Settings>, Error> {
        let line = Line::parse_from(std::iter::once("x").chain(flags.iter().copied()));
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        load(Sources { flags: line.config, variables, default_file })
    }
}

fn mk_log() -> String {
    "info".to_owned()
}

fn mk_listen() -> SocketAddr {
    "127.0.0.1:9000".parse().unwrap()
}

fn mk_wait() -> Span {
    Span::from_secs(30)
}
