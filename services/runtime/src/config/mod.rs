//! Settings: flags before `HOLDFAST_*` variables before a TOML file before defaults.
//!
//! - A key that nobody knows stops the start, and its name and place are told; all such faults at once.
//! - Each secret has a `_file` twin in every place (`--database-url-file`, `HOLDFAST_DATABASE_URL_FILE`,
//!   `database_url_file`), and no flag of its own: the arguments of a process are read by everybody.
//! - Where each value came from is kept; a secret is shown by nothing, not even by the error about it.
//! - An empty variable counts as absent, because compose files set them that way.
//!
//! A service also reads `HOLDFAST_<SERVICE>_<KEY>`, which goes before `HOLDFAST_<KEY>`: one environment may serve several
//! processes. Under its own prefix it refuses what it does not know; of the shared names it refuses those that are one or two
//! slips away from a key of its own, and leaves the others to other programs.

mod flags;
mod keys;
mod load;
mod secret;
mod show;
mod units;

#[cfg(test)]
mod tests;

pub use flags::ConfigFlags;
pub use keys::{COMMON, Config, Key, admin_listen, misdescribed_defaults, undescribed};
pub use load::{Error, Loaded, Place, Sources, UnknownKey, load};
pub use secret::{REDACTED, Secret};
pub use show::Origin;
pub use units::{Size, Span};
