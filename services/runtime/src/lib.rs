//! What every process needs.

pub mod https;
