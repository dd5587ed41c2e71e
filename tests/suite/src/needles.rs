//! Secrets, and every form in which their bytes may show.
//!
//! - A secret is looked for as it is, in hexadecimal, in base64 of both alphabets at each of its three alignments, and as lines of PEM.
//! - Files are read as bytes, whatever they are; nothing is decoded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Bytes that tell forms apart: shorter ones are not looked for.
const NEEDLE_BYTES_MIN: usize = 16;
const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Bytes, the number of their secret, and the form in which they are it.
type Needle = (Vec<u8>, usize, &'static str);

/// What is looked for.
#[derive(Debug, Default)]
pub struct Needles {
    /// By their first four bytes.
    forms: BTreeMap<[u8; 4], Vec<Needle>>,
    /// Whether a form begins with these two bytes.
    begins: Vec<bool>,
    secrets: Vec<Secret>,
}

#[derive(Debug)]
struct Secret {
    name: String,
    /// Files and folders in which it may be.
    homes: Vec<PathBuf>,
}

/// A secret in a place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Found {
    /// Which secret.
    pub secret: String,
    /// In which form.
    pub form: &'static str,
    /// Where.
    pub place: String,
}

impl Needles {
    /// Looks for these bytes too, which may be in these files or below these folders and nowhere else.
    ///
    /// # Panics
    /// When they are too few to be told from others.
    pub fn add(&mut self, name: &str, bytes: &[u8], homes: &[PathBuf]) {
        assert!(bytes.len() >= NEEDLE_BYTES_MIN, "{name} has {} bytes", bytes.len());
        let secret = self.secrets.len();
        self.secrets.push(Secret { name: name.to_owned(), homes: homes.to_vec() });
        self.form(secret, "raw", bytes.to_vec());
        for (form, text) in [("hex", hex(bytes)), ("HEX", hex(bytes).to_uppercase())] {
            self.form(secret, form, text.into_bytes());
        }
        for alignment in 0..3 {
            self.form(secret, "base64", base64_at(bytes, alignment, STANDARD));
            self.form(secret, "base64url", base64_at(bytes, alignment, URL_SAFE));
        }
        self.form(secret, "escaped", bytes.iter().flat_map(|byte| format!("%{byte:02X}").into_bytes()).collect());
    }

    /// Looks for a private key, given as DER or PEM: its secret number, its DER, and its lines in PEM.
    ///
    /// # Panics
    /// When it is no private key whose number is known by its place.
    pub fn add_key(&mut self, name: &str, key: &[u8], homes: &[PathBuf]) {
        let text = String::from_utf8_lossy(key);
        let is_body = |line: &&str| !line.starts_with("-----");
        let der = if text.starts_with("-----BEGIN ") {
            from_base64(&text.lines().filter(is_body).collect::<String>())
        } else {
            key.to_vec()
        };
        // Every kind of ours is an octet string of 32 bytes: what goes before it tells the kind, what follows is public.
        let at = der.windows(2).position(|pair| pair == [0x04, 0x20]);
        let at = at.unwrap_or_else(|| panic!("{name} is no key of a known form")) + 2;
        let number = der.get(at..at + 32).unwrap_or_else(|| panic!("{name} is cut"));
        self.add(name, number, homes);
        let secret = self.secrets.len() - 1;
        self.form(secret, "DER", der.get(..at + 32).unwrap_or_default().to_vec());
        // A line of PEM has 48 bytes; one with half of the number or more is looked for.
        for (index, line) in der.chunks(48).enumerate() {
            let (first, last) = (index * 48, index * 48 + line.len());
            if last.min(at + 32).saturating_sub(first.max(at)) >= 16 {
                self.form(secret, "PEM", base64_at(line, 0, STANDARD));
            }
        }
    }

    fn form(&mut self, secret: usize, form: &'static str, bytes: Vec<u8>) {
        let Some(&head) = bytes.first_chunk::<4>() else { return };
        self.begins.resize(1 << 16, false);
        if let Some(begins) = self.begins.get_mut(usize::from(u16::from_be_bytes([head[0], head[1]]))) {
            *begins = true;
        }
        self.forms.entry(head).or_default().push((bytes, secret, form));
    }

    /// How many secrets there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.secrets.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// The secrets in bytes that may hold none.
    #[must_use]
    pub fn find(&self, place: &str, bytes: &[u8]) -> Vec<Found> {
        self.find_but(place, bytes, |_| false)
    }

    /// The secrets in a file that is none of their homes, or below a folder.
    #[must_use]
    pub fn find_in(&self, path: &Path) -> Vec<Found> {
        if path.is_symlink() {
            return Vec::new();
        }
        if let Ok(entries) = std::fs::read_dir(path) {
            return entries.flatten().flat_map(|entry| self.find_in(&entry.path())).collect();
        }
        // A socket, or a file that went away meanwhile.
        let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
        let is_home = |secret: &Secret| secret.homes.iter().any(|home| path.starts_with(home));
        self.find_but(&path.display().to_string(), &bytes, is_home)
    }

    fn find_but(&self, place: &str, bytes: &[u8], may_be: impl Fn(&Secret) -> bool) -> Vec<Found> {
        let mut found = Vec::new();
        for (at, pair) in bytes.windows(4).enumerate() {
            let &[a, b, c, d] = pair else { continue };
            if !self.begins.get(usize::from(u16::from_be_bytes([a, b]))).copied().unwrap_or_default() {
                continue;
            }
            let Some(forms) = self.forms.get(&[a, b, c, d]) else { continue };
            for (form, secret, name) in forms {
                let is_there = bytes.get(at..).is_some_and(|rest| rest.starts_with(form));
                let Some(secret) = self.secrets.get(*secret).filter(|secret| is_there && !may_be(secret)) else {
                    continue;
                };
                found.push(Found { secret: secret.name.clone(), form: name, place: place.to_owned() });
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The characters that are the same whatever stands around these bytes, so many bytes into a group of three.
fn base64_at(bytes: &[u8], alignment: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let skipped = (3 - alignment) % 3;
    let whole = bytes.get(skipped..).unwrap_or_default().chunks_exact(3);
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        [18, 12, 6, 0].map(|shift| alphabet.get((bits >> shift) as usize & 63).copied().unwrap_or_default())
    };
    whole.flat_map(group).collect()
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |char: u8| STANDARD.iter().position(|known| *known == char);
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for value in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::try_from(value).unwrap_or_default();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap_or_default());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_secret_is_found_wherever_it_stands_and_nothing_else() {
        let secret: Vec<u8> = (0..32_u8).map(|n| n.wrapping_mul(37) ^ 0xa5).collect();
        let mut needles = Needles::default();
        needles.add("it", &secret, &[]);
        for before in 0..4 {
            let around = [&vec![b'x'; before][..], &secret, b"yz"].concat();
            let base64 = base64_at(&around, 0, STANDARD);
            let forms = [around.clone(), hex(&around).into_bytes(), base64];
            for (form, text) in ["raw", "hex", "base64"].into_iter().zip(forms) {
                let found = needles.find("there", &text);
                assert!(found.iter().any(|found| found.form == form), "{form} after {before}: {found:?}");
            }
        }
        let other: Vec<u8> = secret.iter().map(|byte| byte ^ 1).collect();
        assert_eq!(needles.find("there", &other), []);
    }

    #[test]
    fn a_secret_may_be_at_home_and_nowhere_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let (home, other) = (folder.path().join("home"), folder.path().join("other"));
        let secret = b"0123456789abcdef0123456789abcdef";
        for path in [&home, &other] {
            std::fs::write(path, secret).expect("ours");
        }
        let mut needles = Needles::default();
        needles.add("it", secret, std::slice::from_ref(&home));
        let found = needles.find_in(folder.path());
        assert_eq!(found.iter().map(|found| found.place.clone()).collect::<Vec<_>>(), [other.display().to_string()]);
    }
}
