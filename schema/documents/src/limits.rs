//! The largest inputs that are read, with their arithmetic.
//!
//! Text is bounded before it is parsed and nodes while it is parsed, so that aliases cannot multiply a small text into a large tree.

/// The most entries of one address group: five times the 50,000 that must work.
pub const GROUP_ENTRIES_MAX: usize = 250_000;

/// The longest line of an address: `ffff:…:ffff/128` has 43 bytes, and YAML adds an indent, a dash, quotes and a line end.
const GROUP_ENTRY_BYTES: usize = 64;

/// The most bytes of one file: the largest group, and as much again for everything else.
pub const FILE_BYTES_MAX: usize = 2 * GROUP_ENTRIES_MAX * GROUP_ENTRY_BYTES;

/// The most files of one call.
pub const FILES_MAX: usize = 4_096;

/// The most documents in one file.
pub const DOCUMENTS_MAX: usize = 10_000;

/// The most values in the tree of one file after aliases are followed: the largest group, and as much again for everything else.
pub const NODES_MAX: usize = 2 * GROUP_ENTRIES_MAX;

/// The deepest nesting: the deepest legal path (`items[].spec.ingress[].from[].hostSelector.matchExpressions[].values[]`) has 13 levels.
pub const DEPTH_MAX: usize = 32;

/// The most times that aliases may be followed in one file.
pub const ALIASES_MAX: usize = 1_000;

/// The most values that aliases may make again in one file: a convenience for selectors and short lists, no way to write large ones.
pub const ALIAS_NODES_MAX: usize = 50_000;

/// The most faults that are reported; one more says that there are others.
pub const FAULTS_MAX: usize = 1_000;

/// The most bytes of an input that a message repeats.
pub const QUOTE_BYTES_MAX: usize = 80;

/// The most rules in one direction of one policy.
pub const RULES_MAX: usize = 1_000;

/// The most entries of any list in a rule or selector.
pub const LIST_MAX: usize = 10_000;

/// The most addresses of one endpoint.
pub const ENDPOINT_ADDRESSES_MAX: usize = 256;

/// The most declared ports of one host or endpoint.
pub const DECLARED_PORTS_MAX: usize = 256;

/// The longest name of a port, as in Kubernetes (RFC 6335).
pub const PORT_NAME_BYTES_MAX: usize = 15;

const _: () = assert!(NODES_MAX > GROUP_ENTRIES_MAX && FILE_BYTES_MAX > GROUP_ENTRIES_MAX * GROUP_ENTRY_BYTES);
const _: () = assert!(DEPTH_MAX >= 13);
