//! The helpers of a whole lab: probes go out from the namespaces of their sources, and their destinations listen before.
//!
//! - A helper is started when a namespace first takes part and stays until this is dropped.
//! - All helpers work at the same time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::thread;

use super::{Answer, Error, Listen, Patience, Probe, Prober};
use crate::flow::Flow;
use crate::lab::Lab;

/// Probes in one request: small enough that progress shows, large enough that helpers are not waited for.
const PROBES_PER_REQUEST: usize = 512;

/// What one probe tries, between two addresses of the lab or outside.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Shot {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// What is tried.
    pub flow: Flow,
}

/// The helpers of a lab.
pub struct Mesh<'lab> {
    lab: &'lab Lab,
    program: PathBuf,
    helpers: BTreeMap<String, Prober>,
}

impl<'lab> Mesh<'lab> {
    /// Helpers for a lab; `program` is the `holdfast-lab` binary.
    #[must_use]
    pub fn new(lab: &'lab Lab, program: PathBuf) -> Self {
        Self { lab, program, helpers: BTreeMap::new() }
    }

    fn helper(&mut self, namespace: &str) -> Result<&mut Prober, Error> {
        if !self.helpers.contains_key(namespace) {
            let prober = Prober::start(&self.program, namespace)?;
            self.helpers.insert(namespace.to_owned(), prober);
        }
        Ok(self.helpers.get_mut(namespace).expect("the helper was inserted just now"))
    }

    /// Sends all shots and gives their answers in the order of the shots. `progress` hears how many have ended since it last heard.
    ///
    /// # Errors
    /// A helper that does not start, listen or answer.
    pub fn fire(
        &mut self,
        shots: &[Shot],
        patience: &Patience,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<Answer>, Error> {
        let lab = self.lab;
        let mut listens: BTreeMap<&str, Listen> = BTreeMap::new();
        let mut batches: BTreeMap<&str, Vec<Probe>> = BTreeMap::new();
        for (id, shot) in (0_u32..).zip(shots) {
            let Shot { source, destination, flow } = *shot;
            listens.entry(lab.namespace_of(destination)).or_default().add(flow);
            batches.entry(lab.namespace_of(source)).or_default().push(Probe { id, source, destination, flow });
        }
        for (namespace, mut listen) in listens {
            listen.tidy();
            self.helper(namespace)?.listen(&listen)?;
        }
        for namespace in batches.keys() {
            self.helper(namespace)?;
        }
        let mut answers = thread::scope(|scope| {
            let mut running = Vec::new();
            for (namespace, helper) in &mut self.helpers {
                if let Some(batch) = batches.remove(namespace.as_str()) {
                    running.push(scope.spawn(move || fire_from(helper, &batch, patience, progress)));
                }
            }
            let mut answers = Vec::with_capacity(shots.len());
            for helper in running {
                match helper.join() {
                    Ok(ended) => answers.extend(ended?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok::<_, Error>(answers)
        })?;
        answers.sort_by_key(|answer| answer.id);
        Ok(answers)
    }
}

fn fire_from(
    helper: &mut Prober,
    batch: &[Probe],
    patience: &Patience,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Answer>, Error> {
    let mut answers = Vec::with_capacity(batch.len());
    for probes in batch.chunks(PROBES_PER_REQUEST) {
        answers.extend(helper.probe(patience, probes)?);
        progress(probes.len());
    }
    Ok(answers)
}
