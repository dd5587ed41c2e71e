//! What Postgres needs to know: who may come in, how, and the first role.
//!
//! Everybody shows a client certificate whose common name is the role; there is no password.

use super::{GATEWAY_AGENTS, GATEWAY_OPERATORS, OWNER, RENDERER};

/// The database.
pub(super) const DATABASE: &str = "holdfast";

pub(super) fn files() -> [(&'static str, String); 3] {
    let roles = [OWNER, RENDERER, GATEWAY_AGENTS, GATEWAY_OPERATORS].join(",");
    let pg_hba = format!(
        "# Made by `holdfast-renderer init`. TYPE DATABASE USER ADDRESS METHOD\n\
         local   all        all   peer\n\
         hostssl {DATABASE} {roles} all cert\n"
    );
    let settings =
        "# Made by `holdfast-renderer init`. Include it from postgresql.conf; paths are relative to the data folder.\n\
         ssl = on\n\
         ssl_cert_file = 'postgres.pem'\n\
         ssl_key_file = 'postgres.key.pem'\n\
         ssl_ca_file = 'ca.pem'\n\
         ssl_min_protocol_version = 'TLSv1.3'\n"
            .to_owned();
    let bootstrap = format!(
        "-- Made by `holdfast-renderer init`. Run once as a superuser, then `holdfast-renderer migrate`.\n\
         CREATE ROLE {OWNER} LOGIN CREATEROLE NOSUPERUSER NOCREATEDB;\n\
         CREATE DATABASE {DATABASE} OWNER {OWNER} ENCODING 'UTF8' TEMPLATE template0;\n"
    );
    [("pg_hba.conf", pg_hba), ("holdfast.conf", settings), ("bootstrap.sql", bootstrap)]
}
