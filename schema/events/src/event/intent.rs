//! Payloads about authored intent and the operations that change it.

use holdfast_model::ids::{ObjectId, OperationId};
use holdfast_model::intent::Kind;
use holdfast_model::name::Name;
use holdfast_model::numbers::Revision;

use super::payloads;
use crate::codes::{OperationState, OperationVerb};
use crate::place::Content;
use crate::text::Detail;

payloads! {
    /// An authored object came into force, in place of the one of its name.
    ObjectPut {
        /// The change that it is part of.
        revision: Revision,
        /// Its identity, which it keeps while it is in force.
        object: ObjectId,
        /// Its namespace.
        namespace: Name,
        /// Its name.
        name: Name,
        /// What it says.
        content: Content,
    }

    /// An authored object went out of force.
    ObjectDeleted {
        /// The change that it is part of.
        revision: Revision,
        /// Its identity.
        object: ObjectId,
        /// Its kind.
        kind: Kind,
        /// Its namespace.
        namespace: Name,
        /// Its name.
        name: Name,
    }

    /// A change was accepted.
    OperationAccepted {
        /// Its identity.
        operation: OperationId,
        /// What it was asked to do.
        verb: OperationVerb,
        /// The revision that it made.
        revision: Revision,
        /// How many objects it put into force or took out.
        changes: u32,
        /// Why much is taken away, in the words of who asked; absent if that had not to be said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<Detail>,
    }

    /// An operation came to its end.
    OperationFinished {
        /// Its identity.
        operation: OperationId,
        /// Its terminal state.
        state: OperationState,
        /// Why, for people.
        detail: Detail,
    }
}
