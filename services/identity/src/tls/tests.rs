//! Real handshakes over an in-memory pipe: who is let in, who is turned away, and by which side.

use super::client::AgentProtocol;
use super::server::{AcceptError, AdmissionError};
use super::*;
use crate::ca::Ca;
use crate::credential::{Credential, TrustRoots};
use crate::name::ServerRole;
use crate::pin;
use crate::request::{KeyRequest, LeafKey};
use holdfast_model::ids::{AuthorityId, HostId};
use rustls::{CertificateError, ClientConfig, HandshakeKind, ServerConfig};
use rustls_pki_types::ServerName;
use std::error::Error as StdError;
use std::io;
use time::{Duration as Span, OffsetDateTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::TlsConnector;
use uuid::Uuid;

#[tokio::test]
async fn enrolled_host_opens_a_session_as_itself() {
    let at = Estate::new();
    let (server, client) = at.shake(at.door(), at.agent(AgentProtocol::Session)).await;
    let (server, client) = (server.unwrap(), client.unwrap());
    let Ok(Admission::Session(peer)) = Admission::of(server.get_ref().1, at.ca.authority()) else {
        panic!("no session")
    };
    assert_eq!(peer.host, mk_host());
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(ALPN_SESSION));
    assert_eq!(client.get_ref().1.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
}

#[tokio::test]
async fn session_without_a_certificate_is_turned_away_after_the_handshake() {
    let at = Estate::new();
    let mut config = https(&at.roots).unwrap();
    config.alpn_protocols = vec![ALPN_SESSION.to_vec()];
    let server = at.shake(at.door(), config).await.0.unwrap();
    assert_eq!(Admission::of(server.get_ref().1, at.ca.authority()), Err(AdmissionError::NoCertificate));
}

#[tokio::test]
async fn http_is_anonymous_without_a_certificate_and_a_host_with_one() {
    let at = Estate::new();
    let server = at.shake(at.door(), enrolment(at.ca.pin()).unwrap()).await.0.unwrap();
    assert_eq!(Admission::of(server.get_ref().1, at.ca.authority()), Ok(Admission::HttpAnonymous));
    let server = at.shake(at.door(), at.agent(AgentProtocol::Http)).await.0.unwrap();
    let admitted = Admission::of(server.get_ref().1, at.ca.authority());
    assert!(matches!(admitted, Ok(Admission::HttpHost(peer)) if peer.host == mk_host()));
}

#[tokio::test]
async fn peer_without_or_with_a_foreign_protocol_gets_nowhere() {
    let at = Estate::new();
    let mut config = https(&at.roots).unwrap();
    config.alpn_protocols.clear();
    let server = at.shake(at.door(), config).await.0.unwrap();
    assert_eq!(Admission::of(server.get_ref().1, at.ca.authority()), Err(AdmissionError::NoProtocol));
    let mut config = https(&at.roots).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let refused = at.shake(at.door(), config).await.0.map(drop).unwrap_err();
    assert_eq!(rustls_error(&refused), Some(&rustls::Error::NoApplicationProtocol));
}

#[tokio::test]
async fn second_handshake_with_the_same_configuration_is_full_again() {
    let at = Estate::new();
    let door = Arc::new(at.door());
    let config = Arc::new(at.agent(AgentProtocol::Session));
    for _ in 0..3 {
        let (server, client) = shake(&door, Arc::clone(&config), mk_name()).await;
        let (mut server, mut client) = (server.unwrap(), client.unwrap());
        // A round trip, so that a ticket would have arrived if one had been sent.
        exchange(&mut server, &mut client).await;
        assert_eq!(client.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(server.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(client.get_ref().1.tls13_tickets_received(), 0);
    }
}

#[tokio::test]
async fn resuming_client_meets_a_door_that_never_resumes() {
    let at = Estate::new();
    let door = Arc::new(at.door());
    let mut config = at.agent(AgentProtocol::Session);
    config.resumption = rustls::client::Resumption::in_memory_sessions(32);
    let config = Arc::new(config);
    for _ in 0..2 {
        let (server, client) = shake(&door, Arc::clone(&config), mk_name()).await;
        let (mut server, mut client) = (server.unwrap(), client.unwrap());
        exchange(&mut server, &mut client).await;
        assert_eq!(client.get_ref().1.tls13_tickets_received(), 0);
        assert_eq!(server.get_ref().1.handshake_kind(), Some(HandshakeKind::Full));
    }
}

#[tokio::test]
async fn expired_foreign_server_and_service_certificates_are_no_hosts() {
    let at = Estate::new();
    let expired = at.host_credential(OffsetDateTime::now_utc() - Span::hours(25));
    let refused = at.refused_client(&expired).await;
    assert!(matches!(
        rustls_error(&refused),
        Some(rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }))
    ));
    let foreign = Estate::new();
    let refused = at.refused_client(&foreign.host_credential(OffsetDateTime::now_utc())).await;
    assert!(matches!(rustls_error(&refused), Some(rustls::Error::InvalidCertificate(_))), "{refused:?}");
    let refused = at.refused_client(&at.server(ServerRole::Audit)).await;
    assert!(matches!(
        rustls_error(&refused),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }
        ))
    ));
    // A NATS user's certificate passes TLS: it names no host, and ends there.
    let user = at.ca.issue_client("gateway-agents", OffsetDateTime::now_utc()).unwrap();
    let config = agent(&user, &at.roots, AgentProtocol::Session).unwrap();
    let server = at.shake(at.door(), config).await.0.unwrap();
    assert!(matches!(Admission::of(server.get_ref().1, at.ca.authority()), Err(AdmissionError::Name(_))));
}

#[tokio::test]
async fn pin_lets_a_host_find_its_ca_and_refuses_an_impostor() {
    let at = Estate::new();
    let client = at.shake(at.door(), enrolment(at.ca.pin()).unwrap()).await.1.unwrap();
    let presented = client.get_ref().1.peer_certificates().unwrap();
    assert_eq!(at.ca.pin().find_ca(presented), Ok(at.ca.certificate()));

    let impostor = Estate::new();
    let refused = impostor.shake(impostor.door(), enrolment(at.ca.pin()).unwrap()).await.1.map(drop).unwrap_err();
    assert!(matches!(cause::<pin::Error>(&refused), Some(pin::Error::Absent { .. })), "{refused:?}");
}

#[tokio::test]
async fn impostor_that_shows_the_true_ca_beside_its_own_leaf_is_refused() {
    let (at, impostor) = (Estate::new(), Estate::new());
    let leaf = impostor.server(ServerRole::GatewayAgents);
    let chain = vec![leaf.leaf().clone(), at.ca.certificate().clone()];
    let mixed = Credential::new(chain, leaf.key()).unwrap();
    let door = ServerTls::new(agents_door(&mixed, &impostor.roots).unwrap());
    let refused = at.shake(door, enrolment(at.ca.pin()).unwrap()).await.1.map(drop).unwrap_err();
    assert!(matches!(rustls_error(&refused), Some(rustls::Error::InvalidCertificate(_))), "{refused:?}");
}

#[tokio::test]
async fn other_services_and_other_names_are_no_gateway_to_an_agent() {
    let at = Estate::new();
    for role in ServerRole::ALL.into_iter().filter(|role| *role != ServerRole::GatewayAgents) {
        for config in [enrolment(at.ca.pin()).unwrap(), at.agent(AgentProtocol::Session)] {
            let door = ServerTls::new(agents_door(&at.server(role), &at.roots).unwrap());
            let refused = at.shake(door, config).await.1.map(drop).unwrap_err();
            assert!(matches!(cause::<RoleError>(&refused), Some(RoleError::Other { .. })), "{role}: {refused:?}");
        }
    }
    for config in [enrolment(at.ca.pin()).unwrap(), at.agent(AgentProtocol::Session)] {
        let elsewhere = ServerName::try_from("elsewhere.example").unwrap();
        let refused = shake(&at.door(), Arc::new(config), elsewhere).await.1.map(drop).unwrap_err();
        let wrong_name = matches!(
            rustls_error(&refused),
            Some(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
            ))
        );
        assert!(wrong_name, "{refused:?}");
    }
}

#[tokio::test]
async fn expired_gateway_is_refused_by_pin_and_by_root() {
    let at = Estate::new();
    let a_year_ago = OffsetDateTime::now_utc() - Span::days(399);
    let expired = at.ca.issue_server(ServerRole::GatewayAgents, &[mk_name()], a_year_ago).unwrap();
    let door = ServerTls::new(agents_door(&expired, &at.roots).unwrap());
    for config in [enrolment(at.ca.pin()).unwrap(), at.agent(AgentProtocol::Session)] {
        let refused = at.shake_with(&door, config).await.1.map(drop).unwrap_err();
        let expired = matches!(
            rustls_error(&refused),
            Some(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. }
            ))
        );
        assert!(expired, "{refused:?}");
    }
}

#[tokio::test]
async fn replaced_certificate_serves_the_next_handshake_and_live_connections_stay() {
    let at = Estate::new();
    let door = at.door();
    let config = Arc::new(at.agent(AgentProtocol::Session));
    let (server, client) = shake(&door, Arc::clone(&config), mk_name()).await;
    let (mut server, mut client) = (server.unwrap(), client.unwrap());
    let renewed = at.server(ServerRole::GatewayAgents);
    door.replace(agents_door(&renewed, &at.roots).unwrap());
    exchange(&mut server, &mut client).await;
    let next = shake(&door, config, mk_name()).await.1.unwrap();
    assert_eq!(next.get_ref().1.peer_certificates().unwrap().first(), Some(renewed.leaf()));
    assert_ne!(client.get_ref().1.peer_certificates().unwrap().first(), Some(renewed.leaf()));
}

#[tokio::test]
async fn peer_that_dies_without_a_good_bye_is_a_hang_up_and_a_refusal_is_none() {
    let at = Estate::new();
    let (server, client) = at.shake(at.door(), at.agent(AgentProtocol::Session)).await;
    drop(client.unwrap());
    let gone = server.unwrap().read_u8().await.unwrap_err();
    assert!(is_hang_up(&gone), "{gone:?}");
    let expired = at.host_credential(OffsetDateTime::now_utc() - Span::hours(25));
    assert!(!is_hang_up(&at.refused_client(&expired).await));
}

#[tokio::test(start_paused = true)]
async fn silent_peer_is_dropped_when_its_time_is_over() {
    let at = Estate::new();
    let (near, _far) = duplex(1_024);
    let refused = at.door().accept(near).await.map(drop).unwrap_err();
    assert!(matches!(refused, AcceptError::Timeout { limit: HANDSHAKE_TIMEOUT }));
}

#[tokio::test]
async fn mutual_configuration_presents_the_role_and_demands_the_servers_name() {
    let at = Estate::new();
    let user = at.ca.issue_client("holdfast_renderer", OffsetDateTime::now_utc()).unwrap();
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(at.roots.store(), provider()).build().unwrap();
    let nats = at.server(ServerRole::Nats);
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(nats.chain().to_vec(), nats.key())
        .unwrap();
    let door = ServerTls::new(config);
    let server = at.shake_with(&door, mutual(&user, &at.roots).unwrap()).await.0.unwrap();
    assert_eq!(server.get_ref().1.peer_certificates().unwrap().first(), Some(user.leaf()));
    let refused = at.shake_with(&door, https(&at.roots).unwrap()).await.0.map(drop).unwrap_err();
    assert_eq!(rustls_error(&refused), Some(&rustls::Error::NoCertificatesPresented));
}

#[tokio::test]
async fn two_roots_are_trusted_while_a_ca_is_changed() {
    let (old, new) = (Estate::new(), Estate::new());
    let both = TrustRoots::new(vec![old.ca.certificate().clone(), new.ca.certificate().clone()]).unwrap();
    for estate in [&old, &new] {
        let door = ServerTls::new(https_door(&estate.server(ServerRole::GatewayOperators)).unwrap());
        assert!(estate.shake(door, https(&both).unwrap()).await.1.is_ok());
    }
}

struct Estate {
    ca: Ca,
    roots: TrustRoots,
}

type Server = tokio_rustls::server::TlsStream<DuplexStream>;
type Client = tokio_rustls::client::TlsStream<DuplexStream>;
type Shaken = (Result<Server, io::Error>, Result<Client, io::Error>);

impl Estate {
    fn new() -> Self {
        // A CA of some age, so that it can have issued what is over by now.
        let ca = Ca::create(mk_authority(), OffsetDateTime::now_utc() - Span::days(400)).unwrap();
        let roots = ca.roots().unwrap();
        Self { ca, roots }
    }

    fn server(&self, role: ServerRole) -> Credential {
        self.ca.issue_server(role, &[mk_name()], OffsetDateTime::now_utc()).unwrap()
    }

    fn door(&self) -> ServerTls {
        ServerTls::new(agents_door(&self.server(ServerRole::GatewayAgents), &self.roots).unwrap())
    }

    fn host_credential(&self, now: OffsetDateTime) -> Credential {
        let key = LeafKey::generate().unwrap();
        let request = KeyRequest::from_der(&key.request().unwrap()).unwrap();
        key.credential(self.ca.issue_host(mk_host(), &request, now).unwrap().chain_pem.as_bytes()).unwrap()
    }

    fn agent(&self, protocol: AgentProtocol) -> ClientConfig {
        agent(&self.host_credential(OffsetDateTime::now_utc()), &self.roots, protocol).unwrap()
    }

    async fn refused_client(&self, credential: &Credential) -> io::Error {
        let config = agent(credential, &self.roots, AgentProtocol::Session).unwrap();
        self.shake(self.door(), config).await.0.map(drop).unwrap_err()
    }

    async fn shake(&self, door: ServerTls, config: ClientConfig) -> Shaken {
        self.shake_with(&door, config).await
    }

    async fn shake_with(&self, door: &ServerTls, config: ClientConfig) -> Shaken {
        shake(door, Arc::new(config), mk_name()).await
    }
}

async fn shake(door: &ServerTls, config: Arc<ClientConfig>, name: ServerName<'static>) -> Shaken {
    let (near, far) = duplex(64 * 1024);
    let accept = async {
        door.accept(near).await.map_err(|error| match error {
            AcceptError::Handshake(source) => source,
            AcceptError::Timeout { .. } => panic!("{error}"),
        })
    };
    tokio::join!(accept, TlsConnector::from(config).connect(name, far))
}

async fn exchange(server: &mut Server, client: &mut Client) {
    client.write_all(b"ping").await.unwrap();
    client.flush().await.unwrap();
    let mut got = [0; 4];
    server.read_exact(&mut got).await.unwrap();
    server.write_all(&got).await.unwrap();
    server.flush().await.unwrap();
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ping");
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn cause<T: StdError + 'static>(error: &io::Error) -> Option<&T> {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = rustls_error(error)? else { return None };
    other.0.downcast_ref()
}

fn mk_name() -> ServerName<'static> {
    ServerName::try_from("gateway.example").unwrap()
}

fn mk_authority() -> AuthorityId {
    AuthorityId::new(Uuid::from_u128(1))
}

fn mk_host() -> HostId {
    HostId::new(Uuid::from_u128(7))
}
