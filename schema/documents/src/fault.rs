//! What is wrong with an input, in a form that people and programs can use.
//!
//! Rule names are public: they are appended to, never renamed.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::limits;

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident, $word:literal;)+) => {
        /// The stable name of a rule that an input breaks.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum RuleName {$(
            $(#[$doc])*
            $variant,
        )+}

        impl RuleName {
            /// All of them, by name.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word in messages, JSON and documentation.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}

rules! {
    /// `action` is `allow` or `deny`.
    Action, "action";
    /// An address is written in its family's usual form.
    Address, "address";
    /// An endpoint has at least one address.
    AddressMissing, "address-missing";
    /// An address is listed once.
    AddressRepeated, "address-repeated";
    /// `apiVersion` is one that is read here.
    ApiVersion, "api-version";
    /// A prefix is an address, `/` and a length.
    Cidr, "cidr";
    /// `isolate` and `policyTypes` name each direction once, in their own words.
    Direction, "direction";
    /// A file has a bounded number of documents.
    DocumentLimit, "document-limit";
    /// A document is a map of fields.
    DocumentShape, "document-shape";
    /// One name, one object.
    DuplicateName, "duplicate-name";
    /// A range of ports needs a number to start from.
    EndPort, "end-port";
    /// An exception lies strictly within its prefix.
    Except, "except";
    /// A required field is there.
    FieldMissing, "field-missing";
    /// A field is there once.
    FieldRepeated, "field-repeated";
    /// A field is one that the document may have.
    FieldUnknown, "field-unknown";
    /// A file has a bounded size, and there is a bounded number of files.
    FileLimit, "file-limit";
    /// ICMP is given by a word, a type or a type and code.
    Icmp, "icmp";
    /// `kind` is one that is read here.
    KindUnknown, "kind-unknown";
    /// `kind` is one that a later version will read.
    KindUnsupported, "kind-unsupported";
    /// A label key follows Kubernetes' grammar.
    LabelKey, "label-key";
    /// A label value follows Kubernetes' grammar.
    LabelValue, "label-value";
    /// A line of an address list is a prefix or an address.
    ListLine, "list-line";
    /// A list has a bounded length.
    ListLimit, "list-limit";
    /// Labels stand where something reads them.
    MetadataLabels, "metadata-labels";
    /// `mode` is `visibility`, `simulation` or `enforced`.
    Mode, "mode";
    /// A name follows Kubernetes' grammar.
    Name, "name";
    /// A namespace is in no namespace.
    NamespaceNested, "namespace-nested";
    /// Fewer faults than the limit are listed.
    MoreFaults, "more-faults";
    /// `order` is a whole number that fits 32 bits.
    Order, "order";
    /// A peer says who it is.
    PeerEmpty, "peer-empty";
    /// A peer is addresses or labels, never both.
    PeerMixed, "peer-mixed";
    /// A port is a whole number from 1 to 65535.
    Port, "port";
    /// A port's name follows Kubernetes' grammar.
    PortName, "port-name";
    /// A host declares one port per name and protocol.
    PortRepeated, "port-repeated";
    /// A range of ports ascends.
    PortRange, "port-range";
    /// A protocol is one that the field can have.
    Protocol, "protocol";
    /// A document holds no token and no private key.
    Secret, "secret";
    /// `all: true` stands alone.
    SelectorAll, "selector-all";
    /// A selector of ours says which labels, or `all: true`.
    SelectorEmpty, "selector-empty";
    /// An operator is `In`, `NotIn`, `Exists` or `DoesNotExist`.
    SelectorOperator, "selector-operator";
    /// `In` and `NotIn` have values, `Exists` and `DoesNotExist` have none.
    SelectorValues, "selector-values";
    /// A service names exactly one protocol.
    Service, "service";
    /// A value has the type that the field wants.
    Type, "type";
    /// A field of ours has a value or is left out.
    ValueNull, "value-null";
    /// The text is YAML or JSON within the limits of size and nesting.
    Syntax, "syntax";
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl Serialize for RuleName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// One thing that is wrong with an input.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// The name that the input came with.
    pub file: String,
    /// Which document of the file, from 1, those without content not counted; 0 if the fault is the file's.
    pub document: usize,
    /// The line in the file, from 1; 0 if it is not known.
    pub line: u64,
    /// Where in the document, as `spec.ingress[1].from[0].cidr`; empty if the fault is the whole document's.
    pub path: String,
    /// The rule that it breaks.
    pub rule: RuleName,
    /// What is wrong, in a sentence without its end.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.document > 0 {
            write!(f, ": document {}", self.document)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {} [{}]", self.message, self.rule)
    }
}

/// Everything that is wrong with an input, in the order of the text; never empty.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[serde(transparent)]
#[error("the input has {} {}", .0.len(), if .0.len() == 1 { "fault" } else { "faults" })]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Takes faults, of which there must be at least one.
    pub(crate) fn from_some(faults: Vec<Fault>) -> Option<Self> {
        (!faults.is_empty()).then_some(Self(faults))
    }

    /// The faults.
    #[must_use]
    pub fn list(&self) -> &[Fault] {
        &self.0
    }
}

/// Where faults are collected while a document is read.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    faults: Vec<Fault>,
    file: String,
    document: usize,
}

impl Sink {
    /// Says which file and document the next faults are in.
    pub(crate) fn enter(&mut self, file: &str, document: usize) {
        file.clone_into(&mut self.file);
        self.document = document;
    }

    /// Adds a fault; beyond the limit only the fact that there are more.
    pub(crate) fn put(&mut self, line: u64, path: &str, rule: RuleName, message: String) {
        let (rule, message) = match self.faults.len() {
            count if count < limits::FAULTS_MAX => (rule, message),
            limits::FAULTS_MAX => (RuleName::MoreFaults, "there are more faults than are listed".to_owned()),
            _ => return,
        };
        let (file, document, path) = (self.file.clone(), self.document, path.to_owned());
        self.faults.push(Fault { file, document, line, path, rule, message });
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.faults.len()
    }

    /// All of them.
    pub(crate) fn into_faults(self) -> Option<Faults> {
        Faults::from_some(self.faults)
    }
}

/// A text of the input for a message: cut, and with control characters made visible.
pub(crate) fn quote(text: &str) -> String {
    let mut end = text.len().min(limits::QUOTE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let more = if end < text.len() { "…" } else { "" };
    format!("`{}{more}`", text.get(..end).unwrap_or_default().escape_debug())
}
