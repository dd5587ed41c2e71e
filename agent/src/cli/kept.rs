//! What is kept open, from flags.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use holdfast_model::policy::PortRange;

use crate::plan::Kept;
use crate::service::default_route_interfaces;
use crate::standalone::parse_range;

/// Flags of what the agent keeps open whatever is rendered.
#[derive(Args, Debug)]
pub(super) struct KeptArguments {
    /// Gateways, as address:port, separated by commas; TCP to them stays open
    #[arg(long, env = "HOLDFAST_AGENT_KEEP_GATEWAYS", default_value = "", value_name = "LIST", value_parser = list::<SocketAddr>)]
    keep_gateways: List<SocketAddr>,
    /// Resolvers, separated by commas; DNS to them stays open
    #[arg(long, env = "HOLDFAST_AGENT_RESOLVERS", default_value = "", value_name = "LIST", value_parser = list::<IpAddr>)]
    resolvers: List<IpAddr>,
    /// TCP ports of this host that stay open to everybody, separated by commas; an empty list keeps none
    #[arg(long, env = "HOLDFAST_AGENT_FAILSAFE_PORTS", default_value = "22", value_name = "LIST", value_parser = ports)]
    failsafe_ports: List<PortRange>,
    /// Interfaces that lead out of the host, separated by commas; `auto` is those with a default route, an empty list leaves forwarded packets alone
    #[arg(long, env = "HOLDFAST_AGENT_UPLINKS", default_value = "auto", value_name = "LIST", value_parser = uplinks)]
    uplinks: List<String>,
}

/// A list in one value, so that an empty one can be said.
#[derive(Clone, PartialEq, Eq, Debug)]
struct List<T>(Vec<T>);

impl KeptArguments {
    pub(super) fn into_kept(self) -> Kept {
        Kept {
            gateways: self.keep_gateways.0,
            resolvers: self.resolvers.0,
            failsafe_ports: self.failsafe_ports.0,
            is_unguarded: is_unguarded(),
            uplinks: self.uplinks.0,
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn list<T: std::str::FromStr>(text: &str) -> Result<List<T>, String>
where
    T::Err: std::fmt::Display,
{
    let parse = |word: &str| word.parse().map_err(|error| format!("`{word}`: {error}"));
    words(text).map(parse).collect::<Result<_, _>>().map(List)
}

fn ports(text: &str) -> Result<List<PortRange>, String> {
    let parse = |word: &str| parse_range(word).ok_or_else(|| format!("`{word}` is no port and no range of ports"));
    words(text).map(parse).collect::<Result<_, _>>().map(List)
}

#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser that may fail")]
fn uplinks(text: &str) -> Result<List<String>, String> {
    if text.trim() == "auto" {
        // Without a list of routes there is no such family, and so no such route.
        return Ok(List(default_route_interfaces().unwrap_or_default().into_iter().collect()));
    }
    Ok(List(words(text).map(str::to_owned).collect()))
}

/// Whether a test leaves gateways to the policy.
#[cfg(feature = "test-hooks")]
fn is_unguarded() -> bool {
    std::env::var_os("HOLDFAST_AGENT_TEST_UNGUARDED").is_some()
}

#[cfg(not(feature = "test-hooks"))]
const fn is_unguarded() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_a_list_and_a_wrong_word_is_named() {
        assert_eq!(ports(""), Ok(List(vec![])));
        assert_eq!(ports("22, 8000-8001").map(|list| list.0.len()), Ok(2));
        assert!(ports("22,x").is_err_and(|error| error.contains("`x`")));
        assert!(list::<SocketAddr>("10.0.0.1").is_err());
    }
}
