//! A file of what the agent remembers beside its policy, read at the start.
//!
//! - One that is not there, and one that cannot be used, are two things: the latter is told, and set aside where somebody can look at it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

const UNUSABLE: &str = ".unusable";

/// What it says; nothing if it is not there or cannot be used.
pub(super) fn load<T: DeserializeOwned>(file: &Path) -> Option<T> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::error!(file = %file.display(), %error, "what the agent remembers cannot be read: it begins without it");
            return None;
        }
    };
    match serde_json::from_slice(&text) {
        Ok(stored) => Some(stored),
        Err(error) => {
            let aside = beside(file);
            let is_aside = fs::rename(file, &aside);
            tracing::error!(
                file = %file.display(), %error, aside = %aside.display(), is_aside = is_aside.is_ok(),
                "what the agent remembers is damaged: it begins without it, and sets it aside"
            );
            None
        }
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(UNUSABLE);
    name.into()
}
