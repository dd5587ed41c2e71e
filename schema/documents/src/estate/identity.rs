//! Names and ids that follow from texts alone.

use holdfast_model::digest::Digest;
use holdfast_model::ids::HostId;
use holdfast_model::name::{NAME_BYTES_MAX, Name};
use uuid::Builder;

use super::Error;

/// How many characters of a digest make a name unique.
const SUFFIX_CHARS: usize = 8;

/// The id of a host: the same for the same estate and text.
pub(super) fn host_id(estate: &str, host: &str) -> HostId {
    let digest = Digest::of(format!("estate host\0{estate}\0{host}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_bytes()[..16]);
    HostId::new(Builder::from_custom_bytes(bytes).into_uuid())
}

/// A name for a text: itself if it is one, else what of it can be in a name, made unique by a digest of the whole.
pub(super) fn name_for(text: &str) -> Result<Name, Error> {
    text.parse().or_else(|_| name_with_digest(text, text))
}

/// A name that shows `shown` and is unique to `whole`.
pub(super) fn name_with_digest(shown: &str, whole: &str) -> Result<Name, Error> {
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    let cut: String = shown.chars().map(kept).take(NAME_BYTES_MAX - SUFFIX_CHARS - 1).collect();
    let suffix: String = Digest::of(whole.as_bytes()).to_string().chars().take(SUFFIX_CHARS).collect();
    let name = match cut.trim_matches(['-', '.']) {
        "" => suffix,
        trimmed => format!("{trimmed}-{suffix}"),
    };
    name.parse().map_err(|_| Error::value(whole, "no name can be made of this text"))
}
