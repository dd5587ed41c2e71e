//! The artifacts of one intent, read back from their flat bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_documents::estate::Estate;
use holdfast_interpreter::Artifact;
use holdfast_model::artifact::encode;
use holdfast_model::ids::HostId;
use holdfast_model::intent::Intent;
use holdfast_render::render_host;

use super::{Error, MakeIndex};

/// The artifact of every host.
pub(super) type Artifacts = BTreeMap<HostId, Arc<Artifact>>;

/// Renders every host and reads what comes out.
pub(super) fn artifacts(
    estate: &Estate,
    step: usize,
    intent: &Intent,
    index: MakeIndex<'_>,
) -> Result<Artifacts, Error> {
    let index = index(intent);
    // Hosts of one role have the same bytes, which need to be read once.
    let mut read: BTreeMap<Vec<u8>, Arc<Artifact>> = BTreeMap::new();
    let mut all = Artifacts::new();
    for host in intent.hosts.keys() {
        let name = || estate.host_names.get(host).cloned().unwrap_or_else(|| host.to_string());
        let Some(body) = render_host(&index, *host) else {
            return Err(Error::NotRendered { estate: estate.id.clone(), step, host: name() });
        };
        let bytes = encode(&body);
        let artifact = match read.get(&bytes) {
            Some(artifact) => Arc::clone(artifact),
            None => {
                let artifact = Artifact::read(&bytes).map_err(|source| Error::Artifact {
                    estate: estate.id.clone(),
                    step,
                    host: name(),
                    source,
                })?;
                let artifact = Arc::new(artifact);
                read.insert(bytes, Arc::clone(&artifact));
                artifact
            }
        };
        all.insert(*host, artifact);
    }
    Ok(all)
}
