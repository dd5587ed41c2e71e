//! A body as a tree of content-addressed nodes.

use std::collections::BTreeMap;

use super::codec::CodecError;
use super::nodes::{
    Chunk, Descend, Root, TAG_BODY, TAG_BRANCH, decode_chunk, decode_root, decode_rule, encode_root, encode_rule,
    visit_chunks,
};
use crate::address::{Address, Either, Family, Interval};
use crate::digest::Digest;
use crate::interval_set::IntervalSet;
use crate::policy::{Body, BodyError, Chain, Set};

/// Why nodes do not make a body.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssembleError {
    /// A node that another names is not there.
    #[error("artifact node {0} is missing")]
    Missing(Digest),
    /// A node's bytes do not have the digest that names them.
    #[error("artifact node {0} does not have its own digest")]
    Altered(Digest),
    /// A node's bytes mean nothing.
    #[error("artifact node {digest} cannot be read")]
    Codec {
        /// Which node.
        digest: Digest,
        /// What is wrong with it.
        #[source]
        source: CodecError,
    },
    /// The chunks of a set do not make the set that their root names.
    #[error("the chunks under {0} are not in canonical form")]
    Chunks(Digest),
    /// The nodes make a body that is not canonical.
    #[error("the nodes make a body that is not canonical")]
    Body(#[source] BodyError),
}

fn root_of(body: &Body) -> Root {
    let chain =
        |chain: &Chain| (chain.isolated, chain.rules.iter().map(|rule| Digest::of(&encode_rule(rule))).collect());
    Root {
        mode: body.mode,
        chains: [chain(&body.ingress), chain(&body.egress)],
        sets: body.sets.iter().map(|set| (set.key, set.v4.digest(), set.v6.digest())).collect(),
    }
}

impl Body {
    /// The digest of the root node, which names the whole body.
    ///
    /// Sets bring their digest along; the cost is one hash per rule and one of the root.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&encode_root(&root_of(self)))
    }
}

/// The root digest of a body and every node below it that `known` does not hold yet.
///
/// A known node is taken to be stored with all that it names, so a walk does not go below one.
#[must_use]
pub fn tree_of(body: &Body, known: impl Fn(Digest) -> bool) -> (Digest, BTreeMap<Digest, Vec<u8>>) {
    let root = encode_root(&root_of(body));
    let digest = Digest::of(&root);
    let mut nodes = BTreeMap::new();
    if known(digest) {
        return (digest, nodes);
    }
    let mut put = |digest, bytes| {
        if known(digest) || nodes.contains_key(&digest) {
            return Descend::No;
        }
        nodes.insert(digest, bytes);
        Descend::Yes
    };
    for rule in body.ingress.rules.iter().chain(&body.egress.rules) {
        let bytes = encode_rule(rule);
        put(Digest::of(&bytes), bytes);
    }
    for set in &body.sets {
        visit_chunks(set.v4.root(), &mut put);
        visit_chunks(set.v6.root(), &mut put);
    }
    put(digest, root);
    (digest, nodes)
}

/// The digests that a node names: what is to be fetched before [`assemble`] can read it. A node that names none has none.
///
/// # Errors
/// [`CodecError`] if it is a node that names others and cannot be read.
pub fn children(node: &[u8]) -> Result<Vec<Digest>, CodecError> {
    match node.first() {
        Some(&TAG_BODY) => {
            let root = decode_root(node)?;
            let rules = root.chains.into_iter().flat_map(|(_, rules)| rules);
            Ok(rules.chain(root.sets.into_iter().flat_map(|(_, v4, v6)| [v4, v6])).collect())
        }
        Some(&TAG_BRANCH) => match decode_chunk(node)? {
            Chunk::Branch(_, children) => Ok(children),
            Chunk::Leaf(_) => Ok(Vec::new()),
        },
        Some(_) | None => Ok(Vec::new()),
    }
}

/// Reads a body back from its nodes, checking every digest on the way.
///
/// # Errors
/// [`AssembleError`] names the node that is missing, altered or unreadable.
pub fn assemble(root: Digest, fetch: impl Fn(Digest) -> Option<Vec<u8>>) -> Result<Body, AssembleError> {
    let node = |digest| {
        let bytes = fetch(digest).ok_or(AssembleError::Missing(digest))?;
        if Digest::of(&bytes) == digest { Ok(bytes) } else { Err(AssembleError::Altered(digest)) }
    };
    let codec = |digest| move |source| AssembleError::Codec { digest, source };
    let Root { mode, chains: [ingress, egress], sets } = decode_root(&node(root)?).map_err(codec(root))?;
    let chain = |(isolated, rules): (bool, Vec<Digest>)| {
        let rule = |digest| decode_rule(&node(digest)?).map_err(codec(digest));
        Ok(Chain { isolated, rules: rules.into_iter().map(rule).collect::<Result<_, AssembleError>>()? })
    };
    let set = |(key, v4, v6)| {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        gather(v4, Family::V4, 0, &node, &mut low, &mut high)?;
        gather(v6, Family::V6, 0, &node, &mut low, &mut high)?;
        Ok(Set { key, v4: canonical(&low, v4)?, v6: canonical(&high, v6)? })
    };
    let body = Body {
        mode,
        ingress: chain(ingress)?,
        egress: chain(egress)?,
        sets: sets.into_iter().map(set).collect::<Result<_, AssembleError>>()?,
    };
    body.check().map_err(AssembleError::Body)?;
    Ok(body)
}

fn gather(
    digest: Digest,
    family: Family,
    depth: usize,
    node: &impl Fn(Digest) -> Result<Vec<u8>, AssembleError>,
    v4: &mut Vec<Interval<u32>>,
    v6: &mut Vec<Interval<u128>>,
) -> Result<(), AssembleError> {
    let chunk = decode_chunk(&node(digest)?).map_err(|source| AssembleError::Codec { digest, source })?;
    match (chunk, family) {
        (Chunk::Leaf(Either::V4(intervals)), Family::V4) => append(v4, &intervals, depth),
        (Chunk::Leaf(Either::V6(intervals)), Family::V6) => append(v6, &intervals, depth),
        (Chunk::Branch(of, children), _) if of == family && depth < 32 && !children.is_empty() => {
            for child in children {
                gather(child, family, depth + 1, node, v4, v6)?;
            }
            Some(())
        }
        _ => None,
    }
    .ok_or(AssembleError::Chunks(digest))
}

/// Takes the intervals of the next leaf, which must lie above all before them.
///
/// A leaf met twice is refused here, so that forged nodes that name one chunk many times at many depths cannot make a walk long; and none but
/// the root may be empty, so that every branch leads to a leaf.
fn append<A: Address>(all: &mut Vec<Interval<A>>, leaf: &[Interval<A>], depth: usize) -> Option<()> {
    let ascends = match (all.last(), leaf.first()) {
        (Some(last), Some(first)) => last < first,
        (None, Some(_)) => true,
        (_, None) => depth == 0,
    };
    all.extend_from_slice(leaf);
    ascends.then_some(())
}

/// The set of gathered intervals, which must be the very tree that was named.
fn canonical<A: Address>(intervals: &[Interval<A>], named: Digest) -> Result<IntervalSet<A>, AssembleError> {
    let set = IntervalSet::from_canonical(intervals).ok_or(AssembleError::Chunks(named))?;
    if set.digest() == named { Ok(set) } else { Err(AssembleError::Chunks(named)) }
}
