//! The pure renderer: from everything that operators authored to one concrete policy body per host.
//!
//! - [`Index`] holds the intent in the form that rendering asks; [`Index::apply`] takes one edit and says which hosts it can touch.
//! - Equal intent gives equal bytes, whatever edits led to it; a body is canonical ([`Body::check`](holdfast_model::policy::Body::check)).
//! - Rules and sets keep their keys while only peers change, so that such a change is an edit of set members and nothing else.
//! - Hosts of one role (same governing policies, mode and relevant ports) have one body.
//!
//! - [`fleet`] decides when which host is rendered and numbers what is new; [`tenure`] how long its holder may act.
//!
//! It does not judge what was authored (`holdfast-documents` refuses) or store anything (`holdfast-renderer`).

mod compile;
pub mod fleet;
mod index;
mod keys;
pub mod lint;
mod members;
mod mutant;
mod render;
mod resolve;
mod services;
pub mod tenure;

pub use index::{Affected, Edit, Index};
pub use mutant::Mutant;
pub use render::{render_all, render_host, render_hosts};
