//! Whole documents in, objects or faults out.

mod defaults;
mod hostile;
mod malformed;
mod ours;

use holdfast_model::intent::{Object, Policy, Spec};

use crate::{Fault, Source, read};

fn source(text: &str) -> Source {
    Source { name: "in.yaml".to_owned(), text: text.to_owned() }
}

fn objects(text: &str) -> Vec<Object> {
    read(&[source(text)]).unwrap_or_else(|faults| panic!("{:#?}", faults.list()))
}

fn faults(text: &str) -> Vec<Fault> {
    read(&[source(text)]).expect_err("the input has faults").list().to_vec()
}

fn policy_of(text: &str) -> Policy {
    match objects(text).remove(0).spec {
        Spec::NetworkPolicy(policy) | Spec::Policy(policy) => policy,
        Spec::AddressGroup(_) | Spec::Endpoint(_) | Spec::Host(_) | Spec::Namespace(_) => panic!("not a policy"),
    }
}
