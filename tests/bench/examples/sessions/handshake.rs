//! Handshakes in memory: both halves of the product's configurations beside plain mutual ones of the same provider and keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_bench::paired::{Bound, Compared, Paired, Role};
use holdfast_identity::tls::client::AgentProtocol;
use holdfast_identity::{Ca, KeyRequest, LeafKey, ServerRole, tls};
use holdfast_model::ids::HostId;
use holdfast_store::testing::TEST_AUTHORITY;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use rustls_pki_types::ServerName;
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) fn measure(rounds: usize, repetitions: usize) -> Compared {
    let now = OffsetDateTime::now_utc();
    let ca = Ca::create(TEST_AUTHORITY, now).expect("a CA");
    let roots = ca.roots().expect("roots");
    let names = [ServerName::try_from("localhost").expect("a name")];
    let door = ca.issue_server(ServerRole::GatewayAgents, &names, now).expect("a certificate");
    let leaf = LeafKey::generate().expect("a key");
    let request = KeyRequest::from_der(&leaf.request().expect("a request")).expect("our own request");
    let issued = ca.issue_host(HostId::new(Uuid::from_u128(1)), &request, now).expect("a certificate");
    let host = leaf.credential(issued.chain_pem.as_bytes()).expect("it fits the key");
    let ours = (
        Arc::new(tls::agent(&host, &roots, AgentProtocol::Session).expect("a configuration")),
        Arc::new(tls::agents_door(&door, &roots).expect("a configuration")),
    );
    let bare = ca.issue_client("floor", now).expect("a certificate");
    let plain = (
        Arc::new(tls::mutual(&bare, &roots).expect("a configuration")),
        Arc::new(tls::mutual_door(&door, &roots).expect("a configuration")),
    );
    let (product, floor) = ("the agents' door, server's half", "plain mutual TLS, server's half");
    Paired::new("one handshake in memory, both certificates checked, nothing resumed", rounds)
        .side(product, Role::Product)
        .side(floor, Role::Floor)
        .ratio("", product, floor, Bound::None)
        .run(repetitions, &mut [&mut || shake(&ours), &mut || shake(&plain)])
}

/// The time of the server's half.
fn shake((client, server): &(Arc<ClientConfig>, Arc<ServerConfig>)) -> Duration {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(client), name).expect("a connection");
    let mut spent = Duration::ZERO;
    let begun = Instant::now();
    let mut server = ServerConnection::new(Arc::clone(server)).expect("a connection");
    spent += begun.elapsed();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("memory takes it");
        }
        let begun = Instant::now();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("memory gives it");
            server.process_new_packets().expect("they agree");
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("memory takes it");
        }
        spent += begun.elapsed();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory gives it");
            client.process_new_packets().expect("they agree");
        }
    }
    spent
}
