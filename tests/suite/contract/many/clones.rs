//! Two agents with one identity.
