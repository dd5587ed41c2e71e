//! The lab against a real kernel. Every test makes labs of its own and takes them away.

#[cfg(test)]
mod kernel;
