//! The bytes of the ledger: a header, then records, each bound to the one before it.
//!
//! - A record's head has a checksum of its own, so that a flipped length is seen as such; the whole record's checksum covers the checksum before it,
//!   so that no record can be left out, moved or taken from another file.
//! - A file that ends inside a record was cut by a crash while it was written: what stands before it is whole. Anything else is broken.

use std::io::{self, Read};

use holdfast_model::desired::Stamp;
use holdfast_model::digest::Digest;
use holdfast_model::ids::{AuthorityId, HostId};
use holdfast_model::numbers::{AuthorityEpoch, Version};
use holdfast_model::statement::Authority;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::engine::{Origin, Record, RecordContent};

const CONTEXT: &str = "holdfast.dev 2026-11 agent ledger v1";
const MAGIC: &[u8; 8] = b"HFLEDGR1";
const CHECKSUM_BYTES: usize = 16;
/// Magic, host, checksum.
pub(super) const HEADER_BYTES: usize = MAGIC.len() + 16 + CHECKSUM_BYTES;
/// Kind, length.
const HEAD_BYTES: usize = 1 + 4;

/// The checksum that binds records to their file and order.
pub(super) type Checksum = [u8; CHECKSUM_BYTES];

fn checksum(parts: &[&[u8]]) -> Checksum {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    for part in parts {
        hasher.update(part);
    }
    shortened(&hasher)
}

fn shortened(hasher: &blake3::Hasher) -> Checksum {
    let mut short = [0; CHECKSUM_BYTES];
    short.iter_mut().zip(hasher.finalize().as_bytes()).for_each(|(to, from)| *to = *from);
    short
}

/// Why bytes are no ledger of this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// It is another kind of file, or another host's.
    #[error("the file is no ledger of this host")]
    Foreign,
    /// Something in it was changed.
    #[error("the file is damaged at byte {0}")]
    Damaged(usize),
    /// A policy in it was not signed by the renderer that this host was enrolled with.
    #[error("a policy in the file is not the renderer's")]
    Forged,
    /// A record is whole and makes no sense.
    #[error("the record at byte {0} makes no sense")]
    Nonsense(usize),
}

/// One line of the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// On its way into the kernel.
    Candidate(Record),
    /// The candidate before is in force.
    Good,
    /// The candidate before is not.
    Failed,
    /// The candidate before is in force, on trial: what was confirmed last stays good to go back to.
    Trial,
    /// What is on trial leads to a gateway: it stays.
    Confirmed,
    /// What is on trial cut the host off: what was confirmed last is good again, and this content is not tried any more.
    TakenBack,
    /// A content that is not tried any more.
    Shunned(Digest),
    /// The first policy of all was taken back, and nothing came since.
    Opened,
}

impl Line {
    const fn kind(&self) -> u8 {
        match self {
            Self::Candidate(_) => 1,
            Self::Good => 2,
            Self::Failed => 3,
            Self::Trial => 4,
            Self::Confirmed => 5,
            Self::TakenBack => 6,
            Self::Shunned(_) => 7,
            Self::Opened => 8,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredRecord {
    origin: Option<StoredOrigin>,
    version: u64,
    digest: [u8; 32],
    content: StoredContent,
}

#[derive(Serialize, Deserialize)]
struct StoredOrigin {
    authority: [u8; 16],
    epoch: u64,
    /// The two halves of the signature.
    signature: [[u8; 32]; 2],
}

#[derive(Serialize, Deserialize)]
enum StoredContent {
    Whole(Vec<u8>),
    Changes(Vec<u8>),
    Same,
}

/// The header of a host's ledger, and the checksum that its first record is bound to.
pub(super) fn header(host: Option<HostId>) -> (Vec<u8>, Checksum) {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(host.map_or(Uuid::nil(), HostId::uuid).as_bytes());
    let sum = checksum(&[&bytes]);
    bytes.extend_from_slice(&sum);
    (bytes, sum)
}

/// Appends a record's bytes; the checksum that the next one is bound to.
pub(super) fn put(out: &mut Vec<u8>, before: &Checksum, line: &Line) -> Result<Checksum, postcard::Error> {
    let payload = match line {
        Line::Candidate(record) => postcard::to_stdvec(&stored(record))?,
        Line::Shunned(digest) => digest.as_bytes().to_vec(),
        Line::Good | Line::Failed | Line::Trial | Line::Confirmed | Line::TakenBack | Line::Opened => Vec::new(),
    };
    let mut head = vec![line.kind()];
    // Bodies are capped at 32 MiB long before they come here.
    head.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    let head_sum = checksum(&[before, &head]);
    let sum = checksum(&[&head_sum, &payload]);
    for part in [&head[..], &head_sum, &payload, &sum] {
        out.extend_from_slice(part);
    }
    Ok(sum)
}

fn stored(record: &Record) -> StoredRecord {
    StoredRecord {
        origin: record.origin.map(|origin| {
            let (left, right) = origin.signature.split_at(32);
            let half = |from: &[u8]| {
                let mut half = [0; 32];
                half.copy_from_slice(from);
                half
            };
            StoredOrigin {
                authority: *origin.authority.id.uuid().as_bytes(),
                epoch: origin.authority.epoch.raw(),
                signature: [half(left), half(right)],
            }
        }),
        version: record.stamp.version.raw(),
        digest: *record.stamp.digest.as_bytes(),
        content: match &record.content {
            RecordContent::Whole(bytes) => StoredContent::Whole(bytes.clone()),
            RecordContent::Changes(bytes) => StoredContent::Changes(bytes.clone()),
            RecordContent::Same => StoredContent::Same,
        },
    }
}

/// All records of a file, how many bytes of it they and the header take, and the checksum that the next record is bound to.
pub(super) fn read(bytes: &[u8], host: Option<HostId>) -> Result<(Vec<Line>, usize, Checksum), Fault> {
    let (expected, mut before) = header(host);
    let found = bytes.get(..HEADER_BYTES).ok_or(Fault::Foreign)?;
    if found != expected {
        // A header of ours whose checksum holds is another host's; one whose checksum does not is damaged. Neither is used.
        return Err(Fault::Foreign);
    }
    let (mut at, mut lines) = (HEADER_BYTES, Vec::new());
    while let Some((line, end, sum)) = read_line(bytes, at, &before)? {
        lines.push(line);
        (at, before) = (end, sum);
    }
    Ok((lines, at, before))
}

/// The record at a place; `None` if the file ends before it does.
fn read_line(bytes: &[u8], at: usize, before: &Checksum) -> Result<Option<(Line, usize, Checksum)>, Fault> {
    let mut end = at;
    let mut take = |len: usize| {
        let part = bytes.get(end..end.checked_add(len)?)?;
        end += len;
        Some(part)
    };
    let (Some(head), Some(head_sum)) = (take(HEAD_BYTES), take(CHECKSUM_BYTES)) else { return Ok(None) };
    if head_sum != checksum(&[before, head]) {
        return Err(Fault::Damaged(at));
    }
    let [kind, len @ ..] = head else { return Err(Fault::Damaged(at)) };
    let len = len.first_chunk::<4>().map(|len| u32::from_be_bytes(*len)).and_then(|len| usize::try_from(len).ok());
    let len = len.ok_or(Fault::Damaged(at))?;
    let (Some(payload), Some(sum)) = (take(len), take(CHECKSUM_BYTES)) else { return Ok(None) };
    let expected = checksum(&[head_sum, payload]);
    if sum != expected {
        return Err(Fault::Damaged(at));
    }
    let line = match (kind, payload) {
        (1, payload) => Line::Candidate(record(payload).ok_or(Fault::Nonsense(at))?),
        (2, []) => Line::Good,
        (3, []) => Line::Failed,
        (4, []) => Line::Trial,
        (5, []) => Line::Confirmed,
        (6, []) => Line::TakenBack,
        (7, digest) => Line::Shunned(Digest::from_bytes(digest.try_into().map_err(|_| Fault::Nonsense(at))?)),
        (8, []) => Line::Opened,
        _ => return Err(Fault::Nonsense(at)),
    };
    Ok(Some((line, end, expected)))
}

/// The checksum that the record behind so many bytes is bound to, as a file has it; nothing where it is not a whole ledger of this host to there. However
/// long the file is, little of it is in memory at once.
pub(super) fn sum_of(from: &mut impl Read, host: Option<HostId>, len: u64) -> io::Result<Option<Checksum>> {
    match follow(from, host, len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        followed => followed,
    }
}

fn follow(from: &mut impl Read, host: Option<HostId>, len: u64) -> io::Result<Option<Checksum>> {
    let (expected, mut before) = header(host);
    let mut found = [0; HEADER_BYTES];
    from.read_exact(&mut found)?;
    let mut at = HEADER_BYTES as u64;
    if found[..] != expected[..] {
        return Ok(None);
    }
    while at < len {
        let (mut head, mut head_sum, mut sum) = ([0; HEAD_BYTES], [0; CHECKSUM_BYTES], [0; CHECKSUM_BYTES]);
        from.read_exact(&mut head)?;
        from.read_exact(&mut head_sum)?;
        if head_sum != checksum(&[&before, &head]) {
            return Ok(None);
        }
        let [_, payload @ ..] = head;
        let payload = u64::from(u32::from_be_bytes(payload));
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&head_sum);
        if hasher.update_reader(from.by_ref().take(payload))?.count() != payload + CHECKSUM_BYTES as u64 {
            return Ok(None);
        }
        from.read_exact(&mut sum)?;
        if sum != shortened(&hasher) {
            return Ok(None);
        }
        before = sum;
        at = at.saturating_add((HEAD_BYTES + 2 * CHECKSUM_BYTES) as u64).saturating_add(payload);
    }
    Ok((at == len).then_some(before))
}

fn record(payload: &[u8]) -> Option<Record> {
    let (stored, rest) = postcard::take_from_bytes::<StoredRecord>(payload).ok()?;
    let origin = stored.origin.map(|stored| {
        let id = AuthorityId::new(Uuid::from_bytes(stored.authority));
        let mut signature = [0; 64];
        signature.iter_mut().zip(stored.signature.iter().flatten()).for_each(|(to, from)| *to = *from);
        Origin { authority: Authority { id, epoch: AuthorityEpoch::from_raw(stored.epoch) }, signature }
    });
    let content = match stored.content {
        StoredContent::Whole(bytes) => RecordContent::Whole(bytes),
        StoredContent::Changes(bytes) => RecordContent::Changes(bytes),
        StoredContent::Same => RecordContent::Same,
    };
    let stamp = Stamp { version: Version::from_raw(stored.version)?, digest: Digest::from_bytes(stored.digest) };
    rest.is_empty().then_some(Record { origin, stamp, content })
}
