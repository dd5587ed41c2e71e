//! Who caused an event.

use std::fmt;
use std::str::FromStr;

use holdfast_model::ids::{ApiTokenId, GatewayId, HostId, IdError};
use serde::{Deserialize, Serialize};

use crate::secret_free::secret_free;

/// Who caused an event. The text form is `KIND` or `KIND:ID`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Actor {
    /// Whoever set the installation up on the machine itself.
    Bootstrap,
    /// A gateway, on its own account.
    Gateway(GatewayId),
    /// An enrolled or enrolling machine.
    Host(HostId),
    /// Whoever holds this API token.
    Operator(ApiTokenId),
    /// The renderer, on its own account.
    Renderer,
}

/// The text names no actor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActorError {
    /// The kind is not known.
    #[error("`{0}` is no kind of actor")]
    Kind(String),
    /// The id is not one.
    #[error("an actor's id cannot be read")]
    Id(#[from] IdError),
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bootstrap => f.write_str("bootstrap"),
            Self::Gateway(id) => write!(f, "gateway:{id}"),
            Self::Host(id) => write!(f, "host:{id}"),
            Self::Operator(id) => write!(f, "operator:{id}"),
            Self::Renderer => f.write_str("renderer"),
        }
    }
}

impl FromStr for Actor {
    type Err = ActorError;

    fn from_str(text: &str) -> Result<Self, ActorError> {
        match text.split_once(':') {
            None if text == "bootstrap" => Ok(Self::Bootstrap),
            None if text == "renderer" => Ok(Self::Renderer),
            Some(("gateway", id)) => Ok(Self::Gateway(id.parse()?)),
            Some(("host", id)) => Ok(Self::Host(id.parse()?)),
            Some(("operator", id)) => Ok(Self::Operator(id.parse()?)),
            None | Some(_) => Err(ActorError::Kind(text.chars().take(64).collect())),
        }
    }
}

impl TryFrom<String> for Actor {
    type Error = ActorError;
    fn try_from(text: String) -> Result<Self, ActorError> {
        text.parse()
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> Self {
        actor.to_string()
    }
}

secret_free!(Actor);

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn text_form_round_trips() {
        let id = Uuid::from_u128(9);
        let all = [
            Actor::Bootstrap,
            Actor::Gateway(GatewayId::new(id)),
            Actor::Host(HostId::new(id)),
            Actor::Operator(ApiTokenId::new(id)),
            Actor::Renderer,
        ];
        for actor in all {
            assert_eq!(actor.to_string().parse(), Ok(actor));
        }
        assert!(matches!("root".parse::<Actor>(), Err(ActorError::Kind(_))));
        assert!(matches!("host:gw_1".parse::<Actor>(), Err(ActorError::Id(_))));
    }
}
