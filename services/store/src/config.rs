//! How to reach the database.
//!
//! - Options are built here, field by field, never by the driver from a URL: it would log parameters that it does not know, with their values.
//! - A password may be there, but services use client certificates: a `Debug` of this prints no password.

use std::fmt;
use std::path::PathBuf;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// How the connection is protected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tls {
    /// Not at all: a local socket, or a test.
    Off,
    /// The server's certificate and name are verified; a client certificate is shown if there is one.
    Verified {
        /// File with the CA that issued the server's certificate.
        root_cert: PathBuf,
        /// Files with the client's certificate chain and key.
        client: Option<(PathBuf, PathBuf)>,
    },
}

/// How to reach the database.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Name or address of the server, or the folder of its socket.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Name of the database.
    pub database: String,
    /// The role.
    pub user: String,
    /// A password, where the server asks for one.
    pub password: Option<String>,
    /// How the connection is protected.
    pub tls: Tls,
    /// The most connections at once.
    pub connections_max: u32,
    /// What the server shows of this process in `pg_stat_activity`.
    pub application_name: String,
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, database, user, password, tls, connections_max, application_name } = self;
        f.debug_struct("StoreConfig")
            .field("host", host)
            .field("port", port)
            .field("database", database)
            .field("user", user)
            .field("password", &password.as_ref().map(|_| "(redacted)"))
            .field("tls", tls)
            .field("connections_max", connections_max)
            .field("application_name", application_name)
            .finish()
    }
}

/// The text is no address of a database. The text itself is not repeated: it may hold a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not of the form that is understood.
    #[error("a database URL has the form postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETER=VALUE…]: {0}")]
    Form(&'static str),
    /// A parameter that is not known.
    #[error("the database URL has an unknown parameter `{0}`; known are host, sslmode, sslrootcert, sslcert, sslkey")]
    Parameter(String),
    /// TLS parameters that do not fit together.
    #[error("the database URL's TLS parameters do not fit together: {0}")]
    Tls(&'static str),
}

impl ConfigError {
    /// The stable name of the rule that was broken, for people who look it up and programs that tell faults apart.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Form(_) => "database-url",
            Self::Parameter(_) => "database-url-parameter",
            Self::Tls(_) => "database-url-tls",
        }
    }
}

impl StoreConfig {
    /// Connections of a process that says nothing else.
    pub const CONNECTIONS_MAX_DEFAULT: u32 = 10;

    /// Reads `postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?PARAMETERS]`. Parameters: `host` (folder of a socket), `sslmode` (`disable` or
    /// `verify-full`), `sslrootcert`, `sslcert`, `sslkey` (files). Without `sslmode`, TLS is verified if `sslrootcert` is given.
    ///
    /// # Errors
    /// [`ConfigError`] says which part is not understood.
    pub fn from_url(url: &str, application_name: &str) -> Result<Self, ConfigError> {
        let form = ConfigError::Form;
        let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or(form("it begins with postgres://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, database) = rest.split_once('/').ok_or(form("a database is named after the server"))?;
        let (login, server) = server.rsplit_once('@').ok_or(form("a user is named before the server"))?;
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(decode(password)?)),
            None => (login, None),
        };
        let (host, port) = split_port(server)?;
        let mut config = Self {
            host: decode(host)?,
            port,
            database: decode(database)?,
            user: decode(user)?,
            password,
            tls: Tls::Off,
            connections_max: Self::CONNECTIONS_MAX_DEFAULT,
            application_name: application_name.to_owned(),
        };
        config.take_parameters(query)?;
        if [&config.host, &config.database, &config.user].iter().any(|part| part.is_empty()) {
            return Err(form("user, server and database are not empty"));
        }
        Ok(config)
    }

    fn take_parameters(&mut self, query: &str) -> Result<(), ConfigError> {
        let (mut mode, mut root, mut cert, mut key) = (None, None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(ConfigError::Form("a parameter has a value"))?;
            let value = decode(value)?;
            match name {
                "host" => self.host = value,
                "sslmode" => mode = Some(value),
                "sslrootcert" => root = Some(PathBuf::from(value)),
                "sslcert" => cert = Some(PathBuf::from(value)),
                "sslkey" => key = Some(PathBuf::from(value)),
                other => return Err(ConfigError::Parameter(other.chars().take(32).collect())),
            }
        }
        let client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(ConfigError::Tls("sslcert and sslkey are given together"));
            }
        };
        self.tls = match (mode.as_deref(), root) {
            (None | Some("verify-full"), Some(root_cert)) => Tls::Verified { root_cert, client },
            (Some("verify-full"), None) => return Err(ConfigError::Tls("verify-full needs sslrootcert")),
            (None | Some("disable"), None) if client.is_none() => Tls::Off,
            (None | Some("disable"), _) => return Err(ConfigError::Tls("certificates need sslmode=verify-full")),
            (Some(_), _) => return Err(ConfigError::Tls("sslmode is disable or verify-full")),
        };
        Ok(())
    }

    pub(crate) fn options(&self) -> PgConnectOptions {
        let options = PgConnectOptions::new_without_pgpass()
            .host(&self.host)
            .port(self.port)
            .database(&self.database)
            .username(&self.user)
            .application_name(&self.application_name);
        let options = match &self.password {
            Some(password) => options.password(password),
            None => options,
        };
        match &self.tls {
            Tls::Off => options.ssl_mode(PgSslMode::Disable),
            Tls::Verified { root_cert, client } => {
                let options = options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert(root_cert);
                match client {
                    Some((cert, key)) => options.ssl_client_cert(cert).ssl_client_key(key),
                    None => options,
                }
            }
        }
    }
}

fn split_port(server: &str) -> Result<(&str, u16), ConfigError> {
    const DEFAULT: u16 = 5432;
    let port = |text: &str| text.parse().map_err(|_| ConfigError::Form("a port is a number"));
    if let Some(rest) = server.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(ConfigError::Form("a bracket is closed"))?;
        return match rest.strip_prefix(':') {
            Some(text) => Ok((host, port(text)?)),
            None if rest.is_empty() => Ok((host, DEFAULT)),
            None => Err(ConfigError::Form("a port follows a colon")),
        };
    }
    match server.rsplit_once(':') {
        Some((host, text)) => Ok((host, port(text)?)),
        None => Ok((server, DEFAULT)),
    }
}

/// Undoes percent-encoding.
fn decode(text: &str) -> Result<String, ConfigError> {
    const WRONG: ConfigError = ConfigError::Form("a percent sign is followed by two hexadecimal digits");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|c| char::from(c).to_digit(16)).ok_or(WRONG);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).map_err(|_| WRONG)?);
    }
    String::from_utf8(bytes).map_err(|_| ConfigError::Form("it is UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_a_client_certificate_is_read_part_by_part() {
        let url = "postgres://holdfast_renderer@db.example:6432/holdfast?sslmode=verify-full&sslrootcert=/etc/ca.pem\
                   &sslcert=/etc/a%20b.pem&sslkey=/etc/key.pem";
        let config = StoreConfig::from_url(url, "holdfast-renderer").expect("reads");
        assert_eq!((config.host.as_str(), config.port), ("db.example", 6432));
        assert_eq!((config.user.as_str(), config.database.as_str()), ("holdfast_renderer", "holdfast"));
        let client = Some(("/etc/a b.pem".into(), "/etc/key.pem".into()));
        assert_eq!(config.tls, Tls::Verified { root_cert: "/etc/ca.pem".into(), client });
    }

    #[test]
    fn sockets_and_bracketed_addresses_are_read() {
        let socket = StoreConfig::from_url("postgres://me@localhost/db?host=/run/pg", "t").expect("reads");
        assert_eq!((socket.host.as_str(), socket.tls), ("/run/pg", Tls::Off));
        let six = StoreConfig::from_url("postgresql://me@[fd00::1]:7/db", "t").expect("reads");
        assert_eq!((six.host.as_str(), six.port), ("fd00::1", 7));
    }

    #[test]
    fn what_is_not_understood_is_refused_and_a_password_is_never_shown() {
        for url in [
            "http://a@b/c",
            "postgres://b/c",
            "postgres://a@b",
            "postgres://a@b:x/c",
            "postgres://a@b/c?sslmode=prefer",
            "postgres://a@b/c?sslmode=verify-full",
            "postgres://a@b/c?sslcert=/x",
            "postgres://a@b/c?sslmode=disable&sslrootcert=/x",
            "postgres://a@b/c?options=-c%20x",
            "postgres://a@/c",
            "postgres://a:%zz@b/c",
        ] {
            let error = StoreConfig::from_url(url, "t").expect_err(url);
            assert!(!error.to_string().contains("%zz"));
        }
        let config = StoreConfig::from_url("postgres://a:hunter2@b/c", "t").expect("reads");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert_eq!(config.password.as_deref(), Some("hunter2"));
    }
}
