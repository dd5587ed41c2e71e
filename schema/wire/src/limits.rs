//! Every cap of the wire, with its arithmetic.
//!
//! - Each cap fits the next: what may be built fits its frame, and what may be in flight fits the memory set aside for it (invariant A8).
//! - `tests/limits.rs` builds the largest legal value of each message with the real encoder and holds it against its cap.

use holdfast_model::condition::{ConditionType, DETAIL_BYTES_MAX};
use holdfast_model::desired::Component;
pub use holdfast_model::drift::WRITER_BYTES_MAX;
use holdfast_model::name::NAME_BYTES_MAX;
pub use holdfast_model::report::{REPORT_CONDITIONS_MAX, REPORT_TEXT_BYTES_MAX};

/// The length field before each frame.
pub const LENGTH_BYTES: usize = 4;
/// Protocol and kind, two bytes each.
pub const ENVELOPE_BYTES: usize = 4;
/// The most that a length field may say: envelope and payload.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;
/// The most before a Hello was accepted: what a peer may make a gateway hold before it is known.
pub const HELLO_FRAME_BYTES_MAX: usize = 64 * 1024;
/// The most that an agent may send in one frame: outcomes, inventories, reports.
pub const STATUS_FRAME_BYTES_MAX: usize = 128 * 1024;
/// A whole liveness frame with its length: small enough never to wait for room.
pub const LIVENESS_FRAME_BYTES_MAX: usize = 64;

/// The largest version, and the largest number of an update: what a signed column of 64 bits holds. No host reaches it; what is above it is refused
/// where it is read, so that nothing is taken from one host that cannot be written beside what others said.
pub const NUMBER_MAX: u64 = i64::MAX as u64;

/// The most bytes of a body in one frame: 2 s of a link of 1 Mbit/s, after which liveness gets its turn.
pub const CHUNK_BYTES_MAX: usize = 256 * 1024;
/// The largest body: about 3,000,000 IPv4 intervals of 5 to 8 bytes.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What an update costs beside its changes: at most 3 numbers of 10 bytes, 2 digests, a signature, 2 tags and a length.
pub const UPDATE_OVERHEAD_BYTES_MAX: usize = 3 * 10 + 2 * 32 + 64 + 2 * 5 + 5;
/// The most bytes of changes in one delta; what is larger travels as a snapshot.
pub const DELTA_BYTES_MAX: usize = FRAME_BYTES_MAX - ENVELOPE_BYTES - UPDATE_OVERHEAD_BYTES_MAX;

/// The most updates that one session has written and not heard of: beyond it publications coalesce in their slot.
pub const UPDATES_IN_FLIGHT_MAX: usize = 64;
/// The most bytes of them, so that an agent that applies slowly holds no more than one body of the largest size.
pub const BYTES_IN_FLIGHT_MAX: usize = BODY_BYTES_MAX;

/// Applied states in a Hello: one per component, with room for components to come.
pub const APPLIED_MAX: usize = 16;
/// Capabilities in a Hello.
pub const CAPABILITIES_MAX: usize = 64;
/// Addresses in an inventory.
pub const ADDRESSES_MAX: usize = 1024;
/// Gateways in a HelloAck or a Drain.
pub const GATEWAYS_MAX: usize = 32;
/// A gateway as `host:port`: a name, a colon, five digits; brackets around an IPv6 address fit too.
pub const GATEWAY_BYTES_MAX: usize = NAME_BYTES_MAX + 1 + 5;
/// The version text of an agent.
pub const AGENT_VERSION_BYTES_MAX: usize = 64;
/// The host name in an inventory.
pub const HOSTNAME_BYTES_MAX: usize = NAME_BYTES_MAX;
/// The kernel text in an inventory.
pub const KERNEL_BYTES_MAX: usize = 256;
/// Conditions in an outcome: twice those of an attempt.
pub const CONDITIONS_MAX: usize = 2 * ConditionType::OF_ATTEMPT.len();
/// Any text that explains: conditions, refusals, faults.
pub const TEXT_BYTES_MAX: usize = DETAIL_BYTES_MAX;
/// The argument of a directive.
pub const DIRECTIVE_BYTES_MAX: usize = 1024;
/// A drift report, envelope and payload: two numbers of ten bytes, seven of five, one of five for a process with its name, and 18 bytes of fixed width.
pub const DRIFT_FRAME_BYTES_MAX: usize = ENVELOPE_BYTES + 2 * 10 + 7 * 5 + (1 + 5 + 1 + WRITER_BYTES_MAX) + 18;

/// Components in a status: exactly those that there are.
pub const REPORT_COMPONENTS_MAX: usize = Component::ALL.len();
/// A status, envelope and payload: two numbers of ten bytes, a signature and a length; of each component two tags, a version, a digest and a length;
/// of each condition four small fields, two numbers of ten bytes and a message with its length.
pub const REPORT_FRAME_BYTES_MAX: usize = ENVELOPE_BYTES
    + 2 * 10
    + 64
    + 5
    + REPORT_COMPONENTS_MAX * (2 + 10 + 32 + 5)
    + REPORT_CONDITIONS_MAX * (4 + 2 * 10 + 5 + REPORT_TEXT_BYTES_MAX);

const _: () = {
    assert!(REPORT_FRAME_BYTES_MAX <= STATUS_FRAME_BYTES_MAX);
    assert!(DRIFT_FRAME_BYTES_MAX <= STATUS_FRAME_BYTES_MAX);
    // A number, a tag and a digest.
    assert!(LENGTH_BYTES + ENVELOPE_BYTES + 10 + 1 + 32 <= LIVENESS_FRAME_BYTES_MAX);
    assert!(HELLO_FRAME_BYTES_MAX <= STATUS_FRAME_BYTES_MAX && STATUS_FRAME_BYTES_MAX <= FRAME_BYTES_MAX);
    // A chunk costs its envelope, two numbers and a length beside its bytes.
    assert!(ENVELOPE_BYTES + 10 + 5 + 5 + CHUNK_BYTES_MAX <= FRAME_BYTES_MAX);
    assert!(ENVELOPE_BYTES + UPDATE_OVERHEAD_BYTES_MAX + DELTA_BYTES_MAX <= FRAME_BYTES_MAX);
    assert!(BODY_BYTES_MAX <= BYTES_IN_FLIGHT_MAX && DELTA_BYTES_MAX <= BYTES_IN_FLIGHT_MAX);
    // Sizes of bodies travel as u32.
    assert!(BODY_BYTES_MAX <= u32::MAX as usize);
    assert!(Component::ALL.len() <= APPLIED_MAX);
    // A condition costs its text, a version and five small fields; stamps and signature are below 200 bytes.
    assert!(ENVELOPE_BYTES + 200 + CONDITIONS_MAX * (TEXT_BYTES_MAX + 30) <= STATUS_FRAME_BYTES_MAX);
    // An address costs a tag and at most 16 bytes.
    assert!(ENVELOPE_BYTES + HOSTNAME_BYTES_MAX + KERNEL_BYTES_MAX + 10 + ADDRESSES_MAX * 17 <= STATUS_FRAME_BYTES_MAX);
    // One update of the largest size always fits an empty window.
    assert!(UPDATES_IN_FLIGHT_MAX >= Component::ALL.len());
};
