//! Selectors in use, each once, with whom they match and which policies ask.
//!
//! - A query's members are kept while it has a user; a party's change is offered only to queries that could match it (their **anchor**).

use std::collections::{BTreeMap, BTreeSet};

use holdfast_model::label::{Requirement, Selector};
use holdfast_model::name::Name;
use holdfast_model::policy::Direction;
use roaring::RoaringBitmap;

use super::parties::Party;

/// The place of a policy in an index.
pub(crate) type PolicySlot = u32;

/// Names a rule group of a policy of an index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupRef {
    pub(crate) policy: PolicySlot,
    pub(crate) direction: Direction,
    pub(crate) at: usize,
}

/// Where a query looks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// In one namespace.
    In(Name),
    /// In the namespaces whose labels match.
    Matching(Selector),
}

/// Whom a policy means.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Question {
    pub(crate) place: Place,
    pub(crate) labels: Selector,
}

impl Question {
    /// Every host and endpoint.
    pub(crate) fn everybody() -> Self {
        Self { place: Place::Matching(Selector::everything()), labels: Selector::everything() }
    }
}

/// A question in use.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) question: Question,
    pub(crate) members: RoaringBitmap,
    /// The policies whose subject it is.
    pub(crate) subjects: BTreeSet<PolicySlot>,
    /// The groups whose peers it gives.
    pub(crate) peers: BTreeSet<GroupRef>,
}

/// The place of a query in an index.
pub(crate) type QueryId = u64;

/// What a party must have for a query to match it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Anchor {
    Label(String, String),
    Key(String),
    Namespace(Name),
    Nothing,
}

fn anchors_of(question: &Question) -> Vec<Anchor> {
    let few = question
        .labels
        .requirements()
        .iter()
        .filter_map(|requirement| match requirement {
            Requirement::In { key, values } => Some((key, values)),
            Requirement::NotIn { .. } | Requirement::Exists { .. } | Requirement::DoesNotExist { .. } => None,
        })
        .min_by_key(|(_, values)| values.len());
    if let Some((key, values)) = few {
        return values.iter().map(|value| Anchor::Label(key.clone(), value.clone())).collect();
    }
    let exists = question.labels.requirements().iter().find_map(|requirement| match requirement {
        Requirement::Exists { key } => Some(Anchor::Key(key.clone())),
        Requirement::In { .. } | Requirement::NotIn { .. } | Requirement::DoesNotExist { .. } => None,
    });
    vec![exists.unwrap_or_else(|| match &question.place {
        Place::In(namespace) => Anchor::Namespace(namespace.clone()),
        Place::Matching(_) => Anchor::Nothing,
    })]
}

/// All questions in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queries {
    next: QueryId,
    all: BTreeMap<QueryId, Query>,
    by_question: BTreeMap<Question, QueryId>,
    by_anchor: BTreeMap<Anchor, BTreeSet<QueryId>>,
}

impl Queries {
    /// The query of a question; a new one has the members that `evaluate` finds.
    pub(crate) fn ensure(&mut self, question: Question, evaluate: impl FnOnce(&Question) -> RoaringBitmap) -> QueryId {
        if let Some(id) = self.by_question.get(&question) {
            return *id;
        }
        let id = self.next;
        self.next += 1;
        for anchor in anchors_of(&question) {
            self.by_anchor.entry(anchor).or_default().insert(id);
        }
        let members = evaluate(&question);
        self.by_question.insert(question.clone(), id);
        self.all.insert(id, Query { question, members, subjects: BTreeSet::new(), peers: BTreeSet::new() });
        id
    }

    pub(crate) fn at(&self, id: QueryId) -> Option<&Query> {
        self.all.get(&id)
    }

    pub(crate) fn at_mut(&mut self, id: QueryId) -> Option<&mut Query> {
        self.all.get_mut(&id)
    }

    pub(crate) fn members(&self, id: QueryId) -> RoaringBitmap {
        self.at(id).map(|query| query.members.clone()).unwrap_or_default()
    }

    /// Drops a query that nobody uses any more.
    pub(crate) fn release(&mut self, id: QueryId) {
        let unused = self.at(id).is_some_and(|query| query.subjects.is_empty() && query.peers.is_empty());
        let Some(query) = unused.then(|| self.all.remove(&id)).flatten() else { return };
        for anchor in anchors_of(&query.question) {
            if let Some(anchored) = self.by_anchor.get_mut(&anchor) {
                anchored.remove(&id);
                if anchored.is_empty() {
                    self.by_anchor.remove(&anchor);
                }
            }
        }
        self.by_question.remove(&query.question);
    }

    /// The queries that could match a party.
    pub(crate) fn candidates(&self, party: &Party) -> BTreeSet<QueryId> {
        let labels = party
            .labels
            .iter()
            .flat_map(|(key, value)| [Anchor::Label(key.clone(), value.clone()), Anchor::Key(key.clone())]);
        let anchors = labels.chain([Anchor::Namespace(party.namespace.clone()), Anchor::Nothing]);
        anchors.filter_map(|anchor| self.by_anchor.get(&anchor)).flatten().copied().collect()
    }

    /// The queries that look for namespaces by their labels.
    pub(crate) fn by_namespace_labels(&self) -> impl Iterator<Item = (QueryId, &Query, &Selector)> {
        self.all.iter().filter_map(|(id, query)| match &query.question.place {
            Place::In(_) => None,
            Place::Matching(selector) => Some((*id, query, selector)),
        })
    }
}
