//! The JSON of `estate/1` and `ipset-churn/1`, as it is written.
//!
//! What carries meaning refuses fields that it does not know; remarks are skipped.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Head {
    pub(super) format: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "remarks that the format has and nothing reads; listed so that an unknown field is an error"
)]
pub(super) struct EstateFile {
    pub(super) format: String,
    pub(super) id: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) needs: Vec<String>,
    pub(super) workloads: Vec<Workload>,
    #[serde(default)]
    pub(super) ipsets: Vec<IpSet>,
    #[serde(default)]
    pub(super) enforced: Enforced,
    #[serde(default)]
    pub(super) rules: Vec<Rule>,
    #[serde(default)]
    pub(super) expect: Vec<Expect>,
    #[serde(default)]
    pub(super) steps: Vec<Step>,
    #[serde(default)]
    source: serde::de::IgnoredAny,
    #[serde(default)]
    truth: serde::de::IgnoredAny,
    #[serde(default)]
    notes: serde::de::IgnoredAny,
    #[serde(default)]
    services_graph: serde::de::IgnoredAny,
    #[serde(default)]
    dead_selectors: serde::de::IgnoredAny,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Workload {
    pub(super) id: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    #[serde(default)]
    pub(super) ports: Vec<Port>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Port {
    pub(super) proto: String,
    pub(super) port: u16,
    pub(super) name: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IpSet {
    pub(super) id: String,
    pub(super) cidrs: Option<Vec<String>>,
    pub(super) file: Option<String>,
    pub(super) facts: Option<Facts>,
}

/// What a file says about an address list.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// How many entries.
    pub entries: usize,
    /// How many different ones.
    pub unique: usize,
    /// How many of those lie within another.
    pub nested_inside_another: usize,
    /// How many IPv4 prefixes the canonical list has.
    pub canonical_v4: usize,
    /// How many IPv6 prefixes the canonical list has.
    pub canonical_v6: usize,
    /// How many IPv4 addresses.
    pub addresses_v4: Total,
    /// How many IPv6 addresses.
    pub addresses_v6: Total,
    /// SHA-256 of the canonical list, in hexadecimal.
    pub canonical_sha256: String,
}

/// A count of addresses, written as a number or, when it is large, as a text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Total(pub u128);

impl<'de> Deserialize<'de> for Total {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Number(number) => Ok(Self(u128::from(number))),
            Form::Text(text) => text.parse().map(Self).map_err(serde::de::Error::custom),
        }
    }
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Enforced {
    #[serde(default, rename = "in")]
    pub(super) ingress: Vec<Sel>,
    #[serde(default, rename = "out")]
    pub(super) egress: Vec<Sel>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sel {
    pub(super) all: Option<bool>,
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) expr: Option<Vec<Expr>>,
    /// Whose enforcement this is; only where selectors enforce.
    pub(super) policy: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expr {
    pub(super) key: String,
    pub(super) op: String,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Dir {
    In,
    Out,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    #[serde(default)]
    pub(super) id: String,
    pub(super) policy: String,
    pub(super) dir: Dir,
    pub(super) subject: Sel,
    pub(super) peers: AnyOr<PeerFile>,
    pub(super) services: AnyOr<ServiceFile>,
    pub(super) dst: Option<Vec<String>>,
}

/// The word `any` or a list.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum AnyOr<T> {
    Word(String),
    List(Vec<T>),
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerFile {
    pub(super) sel: Option<Sel>,
    pub(super) cidr: Option<String>,
    #[serde(default)]
    pub(super) except: Vec<String>,
    pub(super) ipset: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceFile {
    pub(super) proto: String,
    pub(super) port: Option<u16>,
    pub(super) end: Option<u16>,
    pub(super) name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    #[serde(default)]
    pub(super) edits: Vec<Edit>,
    #[serde(default)]
    pub(super) expect: Vec<Expect>,
    #[serde(default, rename = "notes")]
    _notes: serde::de::IgnoredAny,
    #[serde(default, rename = "title")]
    _title: serde::de::IgnoredAny,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Edit {
    PutRules {
        policy: String,
        #[serde(default)]
        rules: Vec<Rule>,
        #[serde(default)]
        enforced: Enforced,
    },
    DropRules {
        policy: String,
    },
    SetLabels {
        workloads: Vec<String>,
        labels: BTreeMap<String, String>,
    },
    PutWorkload {
        workload: Workload,
    },
    DropWorkload {
        id: String,
    },
    PutIpset {
        ipset: IpSet,
    },
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Expect {
    Probe(Matrix),
    Conn(Matrix),
    List(Flows),
}

#[derive(Deserialize)]
pub(super) struct Matrix {
    pub(super) proto: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) family: Option<u8>,
    pub(super) at: Option<String>,
    pub(super) from: Option<Vec<String>>,
    pub(super) to: Option<Vec<String>>,
    pub(super) protos: Option<Vec<String>>,
    #[serde(default)]
    pub(super) legend: BTreeMap<String, AnyOr<ServiceFile>>,
    pub(super) rows: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Flows {
    pub(super) at: Option<String>,
    pub(super) flows: Vec<FlowFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FlowFile {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) proto: String,
    pub(super) port: Option<u16>,
    pub(super) allow: bool,
    pub(super) family: Option<u8>,
}

#[derive(Deserialize)]
pub(super) struct ChurnFile {
    pub(super) id: String,
    #[serde(default)]
    pub(super) title: String,
    pub(super) first: Vec<String>,
    pub(super) first_facts: Option<Facts>,
    pub(super) steps: Vec<ChurnStepFile>,
}

#[derive(Deserialize)]
pub(super) struct ChurnStepFile {
    #[serde(default)]
    pub(super) add: Vec<String>,
    #[serde(default)]
    pub(super) remove: Vec<String>,
    pub(super) after: Option<Facts>,
    pub(super) invalid_lines: Option<serde_json::Value>,
}
