//! What the CA issues, read back field by field; what hostile requests get; files.

use super::*;
use crate::name::{client_role_of, host_id_of};
use crate::request;
use rcgen::{CustomExtension, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm};
use time::macros::datetime;
use uuid::Uuid;
use x509_parser::extensions::{GeneralName, ParsedExtension};

const NOW: OffsetDateTime = datetime!(2026-11-29 12:00:00 UTC);

#[test]
fn root_lives_ten_years_signs_leaves_only_and_names_its_authority() {
    let ca = mk_ca();
    let (_, root) = X509Certificate::from_der(ca.certificate()).unwrap();
    let constraints = root.basic_constraints().unwrap().unwrap();
    assert!(constraints.critical && constraints.value.ca && constraints.value.path_len_constraint == Some(0));
    let usage = root.key_usage().unwrap().unwrap().value;
    assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    assert_eq!(ca.validity(), Validity { not_before: NOW - BACKDATE, not_after: NOW + Duration::days(3_650) });
    assert_eq!(CertificateName::of(ca.certificate()), Ok(CertificateName::Ca(mk_authority())));
}

#[test]
fn c56_a_host_leaf_holds_exactly_what_was_granted_and_is_good_from_before_it_was_issued() {
    let ca = mk_ca();
    let key = LeafKey::generate().unwrap();
    let request = KeyRequest::from_der(&key.request().unwrap()).unwrap();
    let leaf = ca.issue_host(mk_host(), &request, NOW).unwrap();
    assert_host_leaf(&ca, &leaf, &request);
    assert_eq!(leaf.validity, Validity { not_before: NOW - BACKDATE, not_after: NOW + Duration::hours(24) });
    let again = ca.issue_host(mk_host(), &request, NOW).unwrap();
    assert_ne!(leaf.serial, again.serial, "a renewal on the same key is another certificate");
    assert!(key.credential(leaf.chain_pem.as_bytes()).is_ok());
}

#[test]
fn ed25519_key_of_a_host_is_taken_too() {
    let request = KeyRequest::from_der(&mk_request(&PKCS_ED25519, |_| ())).unwrap();
    let ca = mk_ca();
    assert_host_leaf(&ca, &ca.issue_host(mk_host(), &request, NOW).unwrap(), &request);
}

#[test]
fn hostile_requests_contribute_their_key_and_nothing_else() {
    let ca = mk_ca();
    let other = CertificateName::Host(mk_authority(), HostId::new(Uuid::from_u128(99))).to_string();
    let tricks: [fn(&mut CertificateParams, &str); 7] = [
        |params, other| params.subject_alt_names.push(SanType::URI(other.try_into().unwrap())),
        |params, _| params.subject_alt_names.push(SanType::DnsName("gateway.example".try_into().unwrap())),
        |params, _| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        |params, _| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any]
        },
        |params, _| params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign],
        |params, _| params.distinguished_name.push(DnType::CommonName, "postgres"),
        |params, _| {
            params
                .custom_extensions
                .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![5, 0]));
        },
    ];
    for (index, trick) in tricks.iter().enumerate() {
        let der = mk_request(&PKCS_ECDSA_P256_SHA256, |params| trick(params, &other));
        let request = KeyRequest::from_der(&der).unwrap_or_else(|error| panic!("trick {index}: {error}"));
        assert_host_leaf(&ca, &ca.issue_host(mk_host(), &request, NOW).unwrap(), &request);
    }
}

#[test]
fn keys_off_the_list_broken_and_unproven_requests_are_refused() {
    let p384 = mk_request(&PKCS_ECDSA_P384_SHA384, |_| ());
    assert_eq!(KeyRequest::from_der(&p384), Err(request::Error::KeyKind));
    let good = mk_request(&PKCS_ECDSA_P256_SHA256, |_| ());
    let mut trailing = good.clone();
    trailing.push(0);
    assert_eq!(KeyRequest::from_der(&trailing), Err(request::Error::Malformed));
    assert_eq!(
        KeyRequest::from_der(&vec![0x30; request::REQUEST_BYTES_MAX + 1]),
        Err(request::Error::TooLarge { bytes: 8_193 })
    );
    // A request around somebody else's key: the signature is of the sender's own.
    let (mine, theirs) = (mk_request(&PKCS_ECDSA_P256_SHA256, |_| ()), LeafKey::generate().unwrap());
    let stolen = replace_key(&mine, &theirs.pair().subject_public_key_info());
    assert_eq!(KeyRequest::from_der(&stolen), Err(request::Error::Unproven));
}

proptest::proptest! {
    #[test]
    fn altered_requests_never_panic_and_never_count_for_another_key(at in 0_usize..4096, to in 0_u8..=255) {
        let good = mk_request(&PKCS_ED25519, |_| ());
        let key = KeyRequest::from_der(&good).unwrap();
        let mut altered = good.clone();
        let at = at % altered.len();
        altered[at] = to;
        if let Ok(other) = KeyRequest::from_der(&altered) {
            assert_eq!(other, key);
        }
    }
}

#[test]
fn server_certificate_names_role_and_addresses_and_client_certificate_the_role_alone() {
    let ca = mk_ca();
    let names = [ServerName::try_from("gw-1.example").unwrap(), ServerName::try_from("192.0.2.7").unwrap()];
    let server = ca.issue_server(ServerRole::GatewayAgents, &names, NOW).unwrap();
    let (_, parsed) = X509Certificate::from_der(server.leaf()).unwrap();
    assert_eq!(
        alternative_names(&parsed),
        [
            format!("URI {}", CertificateName::Service(mk_authority(), ServerRole::GatewayAgents)),
            "DNS gw-1.example".into(),
            "IP [192, 0, 2, 7]".into()
        ]
    );
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.server_auth && !usage.client_auth);

    let client = ca.issue_client("holdfast_renderer", NOW).unwrap();
    let (_, parsed) = X509Certificate::from_der(client.leaf()).unwrap();
    assert_eq!(alternative_names(&parsed), ["DNS holdfast_renderer"]);
    assert_eq!(parsed.subject().to_string(), "CN=holdfast_renderer");
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth);
    assert_eq!(client_role_of(client.leaf()).as_deref(), Ok("holdfast_renderer"));
    assert!(client_role_of(server.leaf()).is_err() && client_role_of(ca.certificate()).is_err());

    assert!(matches!(ca.issue_server(ServerRole::Nats, &[], NOW), Err(Error::Nameless { role: ServerRole::Nats })));
    for bad in ["", "Big", "a.b", "a b", &"x".repeat(64)] {
        assert!(matches!(ca.issue_client(bad, NOW), Err(Error::Subject { .. })), "{bad}");
    }
}

#[test]
fn no_leaf_outlives_the_root_and_a_lapsed_root_issues_none() {
    let ca = mk_ca();
    let end = ca.validity().not_after;
    let late = ca.issue_client("a", end - Duration::hours(1)).unwrap();
    assert_eq!(late.validity().not_after, end);
    assert!(matches!(ca.issue_client("a", end), Err(Error::Lapsed { .. })));
    assert!(matches!(ca.issue_client("a", NOW - Duration::hours(1)), Err(Error::Lapsed { .. })));
}

#[test]
fn saved_ca_loads_as_the_same_one_and_is_never_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("pki");
    let ca = mk_ca();
    ca.save(&folder).unwrap();
    let loaded = Ca::load(&folder).unwrap();
    assert_eq!((loaded.pin(), loaded.authority()), (ca.pin(), ca.authority()));
    assert!(matches!(mk_ca().save(&folder), Err(Error::Exists { .. })));
    assert_eq!(Ca::load(&folder).unwrap().pin(), ca.pin());
    // What the loaded CA signs verifies under the first one's certificate.
    let leaf = loaded.issue_client("x", NOW).unwrap();
    let (_, parsed) = X509Certificate::from_der(leaf.leaf()).unwrap();
    let (_, issuer) = X509Certificate::from_der(ca.certificate()).unwrap();
    assert!(parsed.verify_signature(Some(issuer.public_key())).is_ok());
}

#[test]
fn key_of_another_ca_and_certificate_that_is_none_are_refused() {
    let (one, two) = (mk_ca(), mk_ca());
    let key_of = |ca: &Ca| ca.issuer.key().serialize_pem();
    let mixed = Ca::from_pem(one.certificate_pem().as_bytes(), key_of(&two).as_bytes());
    assert!(matches!(mixed, Err(Error::Credential(credential::Error::Mismatch))));
    let leaf = one.issue_client("x", NOW).unwrap();
    let chain = credential::pem_text("CERTIFICATE", leaf.leaf());
    assert!(matches!(Ca::from_pem(chain.as_bytes(), leaf.key_pem().as_bytes()), Err(Error::NotCa(_))));
}

#[test]
fn saved_credential_loads_and_a_foreign_key_file_is_named() {
    let root = tempfile::tempdir().unwrap();
    let ca = mk_ca();
    let (one, two) = (ca.issue_client("one", NOW).unwrap(), ca.issue_client("two", NOW).unwrap());
    one.save(root.path(), "one").unwrap();
    two.save(root.path(), "two").unwrap();
    assert_eq!(Credential::load_named(root.path(), "one").unwrap().chain(), one.chain());
    let key = root.path().join("two.key.pem");
    let mixed = Credential::load(&root.path().join("one.pem"), &key).unwrap_err();
    assert!(matches!(mixed, credential::Error::In { path, .. } if path == key));
}

#[test]
fn a_credential_that_is_replaced_is_the_old_one_or_the_new_one_at_whatever_step_its_writer_dies() {
    let ca = mk_ca();
    let (old, new) = (ca.issue_client("one", NOW).unwrap(), ca.issue_client("one", NOW).unwrap());
    let folders = [saved(&old), saved(&new)];
    let read = |which: usize, file: &str| std::fs::read(folders[which].path().join(file)).unwrap();
    let steps: [&[(&str, usize, &str)]; 3] = [
        &[("one.next.key.pem", 1, "one.key.pem")],
        &[("one.next.key.pem", 1, "one.key.pem"), ("one.pem", 1, "one.pem")],
        &[("one.next.key.pem", 1, "one.key.pem"), ("one.pem", 1, "one.pem"), ("one.key.pem", 1, "one.key.pem")],
    ];
    for (written, expected) in steps.into_iter().zip([&old, &new, &new]) {
        let folder = saved(&old);
        for (file, which, from) in written {
            files::write_secret(&folder.path().join(file), &read(*which, from)).unwrap();
        }
        let loaded = Credential::load_named(folder.path(), "one").unwrap();
        assert_eq!((loaded.chain(), &*loaded.key_pem()), (expected.chain(), &*expected.key_pem()), "{written:?}");
        // And the next one begins from there.
        new.save(folder.path(), "one").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(Credential::load_named(folder.path(), "one").unwrap().chain(), new.chain());
    }
}

#[test]
fn certificate_with_no_uri_or_with_two_is_nobody() {
    let ca = mk_ca();
    let uri = |n| uri(CertificateName::Host(mk_authority(), HostId::new(Uuid::from_u128(n)))).unwrap();
    for (names, found) in [(vec![], 0), (vec![uri(1), uri(2)], 2), (vec![uri(1), uri(1)], 2)] {
        let leaf = Leaf {
            common_name: "x",
            alternative_names: names,
            usage: ExtendedKeyUsagePurpose::ClientAuth,
            life: HOST_LIFE,
        };
        let leaf = ca.issue_with_key(leaf, NOW).unwrap();
        assert_eq!(host_id_of(leaf.leaf(), mk_authority()), Err(name::Error::UriCount { found }));
    }
}

#[test]
fn service_and_host_of_another_authority_are_no_host_here() {
    let ca = mk_ca();
    let names = [ServerName::try_from("a.example").unwrap()];
    let server = ca.issue_server(ServerRole::Audit, &names, NOW).unwrap();
    assert!(matches!(host_id_of(server.leaf(), mk_authority()), Err(name::Error::OtherKind { .. })));
    let request = KeyRequest::from_der(&mk_request(&PKCS_ED25519, |_| ())).unwrap();
    let leaf = ca.issue_host(mk_host(), &request, NOW).unwrap();
    let foreign = AuthorityId::new(Uuid::from_u128(2));
    assert!(matches!(host_id_of(&leaf.certificate, foreign), Err(name::Error::OtherAuthority { .. })));
}

#[test]
fn what_is_handed_over_as_a_hosts_is_so_by_ca_usage_authority_and_name_whatever_this_clock_says() {
    let (ca, other) = (mk_ca(), mk_ca());
    let key = LeafKey::generate().unwrap();
    let request = KeyRequest::from_der(&key.request().unwrap()).unwrap();
    let joined = |leaf: Leaf<'_>, ca: &Ca| {
        let signed = ca.sign(leaf, request.key(), NOW).unwrap();
        let text = credential::pem_text("CERTIFICATE", &signed) + &ca.certificate_pem();
        key.credential(text.as_bytes()).unwrap()
    };
    let leaf =
        |name, usage| Leaf { common_name: "x", alternative_names: vec![uri(name).unwrap()], usage, life: HOST_LIFE };
    let ours = CertificateName::Host(mk_authority(), mk_host());
    let client = || ExtendedKeyUsagePurpose::ClientAuth;
    let roots = ca.roots().unwrap();
    let check = |credential: Credential, now| credential.check_host(&roots, mk_authority(), mk_host(), now);

    let good = || key.credential(ca.issue_host(mk_host(), &request, NOW).unwrap().chain_pem.as_bytes()).unwrap();
    // Days off either way: its dates are the authority's, and gateways go by their own clocks.
    for clock in [NOW, NOW - Duration::days(3), NOW + Duration::days(3)] {
        check(good(), clock).unwrap_or_else(|error| panic!("{clock}: {error:?}"));
    }
    assert!(matches!(check(joined(leaf(ours, client()), &other), NOW), Err(credential::Error::Chain(_))));
    let server = joined(leaf(ours, ExtendedKeyUsagePurpose::ServerAuth), &ca);
    assert!(matches!(check(server, NOW), Err(credential::Error::Chain(_))));
    // The CA's name is in it, not its signature.
    let mut forged = params("x", vec![uri(ours).unwrap()], ca.validity()).unwrap();
    forged.extended_key_usages = vec![client()];
    let ca_name = params("Holdfast CA", vec![], ca.validity()).unwrap();
    let forger = Issuer::new(ca_name, LeafKey::generate().unwrap().into_pair());
    let forged = forged.signed_by(key.pair(), &forger).unwrap().der().clone();
    let text = credential::pem_text("CERTIFICATE", &forged) + &ca.certificate_pem();
    assert!(matches!(check(key.credential(text.as_bytes()).unwrap(), NOW), Err(credential::Error::Chain(_))));

    let neighbour = HostId::new(Uuid::from_u128(8));
    let foreign = AuthorityId::new(Uuid::from_u128(2));
    let named = |name| check(joined(leaf(name, client()), &ca), NOW);
    assert!(matches!(
        named(CertificateName::Host(mk_authority(), neighbour)),
        Err(credential::Error::OtherHost { wanted, found }) if (wanted, found) == (mk_host(), neighbour)
    ));
    for name in [CertificateName::Host(foreign, mk_host()), CertificateName::Service(mk_authority(), ServerRole::Audit)]
    {
        assert!(matches!(named(name), Err(credential::Error::Name(_))), "{name}");
    }
}

#[test]
fn certificate_forged_around_the_pinned_key_is_not_the_ca() {
    let ca = mk_ca();
    // Somebody else signs a CA certificate that carries the true CA's public key.
    let forger = LeafKey::generate().unwrap();
    let mut forged = params("Holdfast CA", vec![], ca.validity()).unwrap();
    forged.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = Issuer::new(forged.clone(), forger.into_pair());
    let forged = forged.signed_by(ca.issuer.key(), &issuer).unwrap().der().clone();
    assert_eq!(CaPin::of(&forged), Ok(ca.pin()));
    assert_eq!(ca.pin().find_ca(std::slice::from_ref(&forged)), Err(pin::Error::NotCa { pin: ca.pin() }));
    let both = [forged, ca.certificate().clone()];
    assert_eq!(ca.pin().find_ca(&both), Ok(ca.certificate()));
    assert_eq!(mk_ca().pin().find_ca(&both).map_err(|error| matches!(error, pin::Error::Absent { .. })), Err(true));
}

fn saved(credential: &Credential) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    credential.save(folder.path(), "one").unwrap();
    folder
}

fn assert_host_leaf(ca: &Ca, leaf: &HostLeaf, request: &KeyRequest) {
    let (_, parsed) = X509Certificate::from_der(&leaf.certificate).unwrap();
    let (_, root) = X509Certificate::from_der(ca.certificate()).unwrap();
    parsed.verify_signature(Some(root.public_key())).unwrap();
    assert_eq!(parsed.public_key().raw, request.public_key_info());
    assert_eq!(host_id_of(&leaf.certificate, mk_authority()), Ok(mk_host()));
    assert!(client_role_of(&leaf.certificate).is_err());
    assert_eq!(alternative_names(&parsed), [format!("URI {}", CertificateName::Host(mk_authority(), mk_host()))]);
    assert_eq!(parsed.subject().to_string(), format!("CN={}", mk_host()));
    assert!(!parsed.is_ca());
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any && usage.other.is_empty());
    let bits = parsed.key_usage().unwrap().unwrap().value;
    assert!(bits.digital_signature() && !bits.key_cert_sign() && !bits.crl_sign());
    assert!(leaf.serial.len() == 16 && leaf.serial == parsed.raw_serial());
    let known = |extension: &ParsedExtension<'_>| {
        matches!(
            extension,
            ParsedExtension::AuthorityKeyIdentifier(_)
                | ParsedExtension::SubjectAlternativeName(_)
                | ParsedExtension::KeyUsage(_)
                | ParsedExtension::ExtendedKeyUsage(_)
                | ParsedExtension::BasicConstraints(_)
                | ParsedExtension::SubjectKeyIdentifier(_)
        )
    };
    assert!(parsed.extensions().iter().all(|extension| known(extension.parsed_extension())));
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let text = |name: &GeneralName<'_>| {
        if let GeneralName::URI(uri) = name {
            format!("URI {uri}")
        } else if let GeneralName::DNSName(dns) = name {
            format!("DNS {dns}")
        } else if let GeneralName::IPAddress(bytes) = name {
            format!("IP {bytes:?}")
        } else {
            panic!("{name:?}")
        }
    };
    names.value.general_names.iter().map(text).collect()
}

fn replace_key(request: &[u8], key: &[u8]) -> Vec<u8> {
    let (_, parsed) = x509_parser::certification_request::X509CertificationRequest::from_der(request).unwrap();
    let own = parsed.certification_request_info.subject_pki.raw;
    let at = request.windows(own.len()).position(|window| window == own).unwrap();
    [&request[..at], key, &request[at + own.len()..]].concat()
}

fn mk_request(algorithm: &'static SignatureAlgorithm, change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
    let pair = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::default();
    change(&mut params);
    params.serialize_request(&pair).unwrap().der().to_vec()
}

fn mk_ca() -> Ca {
    Ca::create(mk_authority(), NOW).unwrap()
}

fn mk_authority() -> AuthorityId {
    AuthorityId::new(Uuid::from_u128(1))
}

fn mk_host() -> HostId {
    HostId::new(Uuid::from_u128(7))
}
