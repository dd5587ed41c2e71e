//! The entry: files to objects, or everything that is wrong with them.

use std::collections::BTreeMap;

use holdfast_model::intent::{Object, ObjectKey};
use holdfast_model::secret::secret_at;

use crate::cursor::{At, Fields};
use crate::fault::{Faults, RuleName, Sink};
use crate::kinds;
use crate::limits;
use crate::tree::{Node, parse};

/// One input with the name that faults call it by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// A path, or a word such as `stdin`.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Reads all documents of all sources: objects in the order of the text.
///
/// # Errors
/// Every fault of every source; no object is used then.
pub fn read(sources: &[Source]) -> Result<Vec<Object>, Faults> {
    let mut reader = Reader::default();
    if sources.len() > limits::FILES_MAX {
        let message = format!("{} files at once, at most {} are read", sources.len(), limits::FILES_MAX);
        reader.sink.put(0, "", RuleName::FileLimit, message);
    } else {
        sources.iter().for_each(|source| reader.source(source));
    }
    match reader.sink.into_faults() {
        Some(faults) => Err(faults),
        None => Ok(reader.objects),
    }
}

#[derive(Default)]
struct Reader {
    sink: Sink,
    objects: Vec<Object>,
    places: BTreeMap<ObjectKey, String>,
}

impl Reader {
    fn source(&mut self, source: &Source) {
        self.sink.enter(&source.name, 0);
        if source.text.len() > limits::FILE_BYTES_MAX {
            let message = format!("{} bytes, at most {} are read", source.text.len(), limits::FILE_BYTES_MAX);
            self.sink.put(0, "", RuleName::FileLimit, message);
            return;
        }
        // Before anything is read: no fault may quote it.
        if let Some(at) = secret_at(&source.text) {
            let line = 1 + source.text.bytes().take(at).filter(|byte| *byte == b'\n').count() as u64;
            let message = "there is a token or a private key here: take it out, and make it useless if others saw it";
            self.sink.put(line, "", RuleName::Secret, message.to_owned());
            return;
        }
        let documents = match parse(&source.text) {
            Ok(documents) => documents,
            Err(error) => {
                self.sink.put(error.line, "", RuleName::Syntax, error.message);
                return;
            }
        };
        if documents.len() > limits::DOCUMENTS_MAX {
            let message = format!("{} documents, at most {} are read", documents.len(), limits::DOCUMENTS_MAX);
            self.sink.put(0, "", RuleName::DocumentLimit, message);
            return;
        }
        for (index, node) in documents.iter().enumerate() {
            self.sink.enter(&source.name, index + 1);
            let place = format!("{}:{}", source.name, node.line);
            self.document(&At::root(node), &place);
        }
    }

    fn document(&mut self, at: &At<'_>, place: &str) {
        let Some(mut fields) = kinds::open(at, &mut self.sink) else { return };
        let Some(head) = kinds::head(&mut fields, &mut self.sink) else { return };
        match head {
            kinds::Head::List => {
                if let Some(items_at) = fields.take("items") {
                    for item in items_at.items(&mut self.sink, limits::DOCUMENTS_MAX).unwrap_or_default() {
                        self.item(&item, place);
                    }
                }
                fields.skip(&["metadata"]);
                fields.end(&mut self.sink);
            }
            kinds::Head::Object(kind) => self.object(kind, fields, at.node, place),
        }
    }

    /// A document inside a list, which itself is no list.
    fn item(&mut self, at: &At<'_>, place: &str) {
        let Some(mut fields) = kinds::open(at, &mut self.sink) else { return };
        match kinds::head(&mut fields, &mut self.sink) {
            Some(kinds::Head::Object(kind)) => self.object(kind, fields, at.node, place),
            Some(kinds::Head::List) => {
                at.fault(&mut self.sink, RuleName::KindUnknown, "a list in a list is not read");
            }
            None => {}
        }
    }

    fn object(&mut self, kind: kinds::Authored, fields: Fields<'_>, node: &Node, place: &str) {
        let path = fields.whole().path.clone();
        let faults_before = self.sink.len();
        let Some(object) = kinds::object(kind, fields, &mut self.sink) else { return };
        if self.sink.len() > faults_before {
            return;
        }
        let key = object.key();
        if let Some(first) = self.places.get(&key) {
            let message = format!("{key} is there already, at {first}");
            self.sink.put(node.line, &path, RuleName::DuplicateName, message);
            return;
        }
        self.places.insert(key, format!("{place}{}{path}", if path.is_empty() { "" } else { " " }));
        self.objects.push(object);
    }
}
