//! Settings and the files that they name: services that do not start, and say why.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::world::{Leaves, Said, World};
use crate::control_plane::{Setting, program};

/// Rule, place, variable and value, over the settings of a gateway that runs.
const VALUES: &[(&str, &str, &str, &str)] = &[
    ("setting-unknown", "did you mean `nats_url`", "HOLDFAST_GATEWAY_NATS_ULR", "tls://x:1"),
    ("setting-missing", "HOLDFAST_NATS_URL", "HOLDFAST_NATS_URL", ""),
    ("setting-value", "HOLDFAST_DOORS", "HOLDFAST_DOORS", "none"),
    ("setting-needed", "`agents-identity`", "HOLDFAST_AGENTS_IDENTITY", ""),
    ("log-filter", "`holdfast=loud`", "HOLDFAST_LOG", "holdfast=loud"),
    ("database-url", "postgres://USER", "HOLDFAST_OPERATORS_DATABASE_URL", "mysql://a@b/c"),
    ("database-url-parameter", "`sslmod`", "HOLDFAST_OPERATORS_DATABASE_URL", "postgres://a@b/c?sslmod=verify-full"),
    ("database-url-tls", "sslrootcert", "HOLDFAST_OPERATORS_DATABASE_URL", "postgres://a@b/c?sslmode=verify-full"),
];

/// Tries all of them.
pub(super) fn check(world: &mut World) {
    for (rule, place, variable, value) in VALUES {
        let mut command = gateway(world);
        let said = Said::by_program(&command.env(variable, value).output().expect("it runs"));
        world.refused(rule, place, Leaves::Nothing, &said);
    }
    // A mode that is none, which its own variable is named for.
    let mut command = gateway(world);
    let said = Said::by_program(&command.env("HOLDFAST_DELIVERY_MODE", "pull").output().expect("it runs"));
    world.refused_again("setting-value", "HOLDFAST_DELIVERY_MODE", Leaves::Nothing, &said);
    check_files(world);
    check_addresses(world);
    check_keys(world);
    check_other_services(world);
}

/// A second gateway beside the one that runs, at free addresses.
fn gateway(world: &World) -> Command {
    let free = || format!("127.0.0.1:{}", holdfast_suite::ports::free_port());
    let mut command = service("gateway", &world.plane.gateway_settings());
    command.env("HOLDFAST_ADMIN_LISTEN", free());
    command.env("HOLDFAST_AGENTS_LISTEN", free()).env("HOLDFAST_OPERATORS_LISTEN", free());
    command
}

fn service(name: &str, settings: &[Setting]) -> Command {
    let mut command = Command::new(program(&format!("holdfast-{name}")));
    command.arg("run").env_clear().envs(settings.iter().cloned());
    command
}

fn check_files(world: &mut World) {
    let folder = world.plane.folder().to_owned();
    let syntax = world.plane.file("syntax.toml", "log = \"info\"\nnats_url = \n");
    let secret = world.plane.file("secret.url", "postgres://a:hunter2@b/c\n");
    let cases = [("settings-unreadable", folder.clone(), folder), ("settings-syntax", syntax.clone(), syntax)];
    for (rule, file, place) in cases {
        let said = Said::by_program(&gateway(world).env("HOLDFAST_CONFIG", file).output().expect("it runs"));
        world.refused(rule, &place.display().to_string(), Leaves::Nothing, &said);
    }
    // A password in its own file and in the variable too: neither is shown.
    let mut command = gateway(world);
    let said =
        Said::by_program(&command.env("HOLDFAST_OPERATORS_DATABASE_URL_FILE", secret).output().expect("it runs"));
    world.refused("setting-twice", "`operators_database_url`", Leaves::Nothing, &said);
    assert!(!said.text.contains("hunter2"), "{said:?}");
    let mut command = gateway(world);
    let said = Said::by_program(
        &command.env("HOLDFAST_DOORS", OsString::from_vec(vec![b'a', 0xff])).output().expect("it runs"),
    );
    world.refused("setting-not-text", "HOLDFAST_DOORS", Leaves::Nothing, &said);
}

fn check_addresses(world: &mut World) {
    let taken = world.plane.agents_door().to_string();
    for (rule, variable) in [("admin-listen", "HOLDFAST_ADMIN_LISTEN"), ("listen", "HOLDFAST_AGENTS_LISTEN")] {
        let said = Said::by_program(&gateway(world).env(variable, &taken).output().expect("it runs"));
        world.refused(rule, &taken, Leaves::Nothing, &said);
    }
}

/// A copy of a folder of keys in which one thing is wrong.
fn copied(world: &World, process: &str, name: &str) -> PathBuf {
    let copy = world.plane.folder().join("copies").join(name);
    fs::create_dir_all(&copy).expect("the folder is ours");
    for entry in fs::read_dir(world.plane.keys(process)).expect("init made it").flatten() {
        fs::copy(entry.path(), copy.join(entry.file_name())).expect("both are ours");
    }
    copy
}

fn write_key(path: &Path, text: impl AsRef<[u8]>) {
    fs::write(path, text).expect("the copy is ours");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("the copy is ours");
}

fn check_keys(world: &mut World) {
    const KEY: &str = "gateway-agents.key.pem";
    let refused = |world: &mut World, rule: &str, folder: &Path, place: &str, again: bool| {
        let said = Said::by_program(&gateway(world).env("HOLDFAST_AGENTS_IDENTITY", folder).output().expect("it runs"));
        if again {
            world.refused_again(rule, place, Leaves::Nothing, &said);
        } else {
            world.refused(rule, place, Leaves::Nothing, &said);
        }
    };
    let mk = |world: &World, name: &str| copied(world, "gateway-agents", name);

    let folder = mk(world, "no-key");
    write_key(&folder.join(KEY), "-----BEGIN NOTHING-----\n");
    refused(world, "key-malformed", &folder, KEY, false);
    let folder = mk(world, "other-key");
    let other = fs::read(folder.join("holdfast_gateway_agents.key.pem")).expect("init made it");
    write_key(&folder.join(KEY), other);
    refused(world, "key-mismatch", &folder, KEY, false);
    let folder = mk(world, "exposed");
    fs::set_permissions(folder.join(KEY), Permissions::from_mode(0o644)).expect("the copy is ours");
    refused(world, "file-exposed", &folder, KEY, true);
    let folder = mk(world, "folder");
    fs::remove_file(folder.join("ca.pem")).and_then(|()| fs::create_dir(folder.join("ca.pem"))).expect("ours");
    refused(world, "file-unreadable", &folder, "ca.pem", true);
    let folder = mk(world, "empty");
    fs::write(folder.join("gateway-agents.pem"), "").expect("the copy is ours");
    refused(world, "certificate-malformed", &folder, "gateway-agents.pem", true);
    let folder = mk(world, "signing");
    let other = fs::read(folder.join("gateway-agents.pem")).expect("init made it");
    fs::write(folder.join("desired-signing.pem"), other).expect("the copy is ours");
    refused(world, "signing-key-uncertified", &folder, "desired-signing.pem", false);

    // The keys of another installation, whole and right in themselves.
    let mut init = Command::new(program("holdfast-renderer"));
    let made = init.args(["init", "--dir"]).arg(world.plane.folder().join("other")).env_clear().output();
    assert!(made.expect("it runs").status.success());
    let folder = world.plane.folder().join("other/gateway-agents");
    refused(world, "authority-foreign", &folder, "the certificates to", false);
}

fn check_other_services(world: &mut World) {
    let free = || format!("127.0.0.1:{}", holdfast_suite::ports::free_port());
    let renderer = |world: &World, folder: &Path| {
        let mut command = service("renderer", &world.plane.renderer_settings());
        Said::by_program(
            &command.env("HOLDFAST_ADMIN_LISTEN", free()).env("HOLDFAST_IDENTITY", folder).output().expect("it runs"),
        )
    };
    let folder = copied(world, "renderer", "signing-key");
    write_key(&folder.join("desired-signing.key"), "no key");
    let said = renderer(world, &folder);
    world.refused("signing-key-malformed", "desired-signing.key", Leaves::Nothing, &said);

    // Two audit services on one log, and a log that ends in something else.
    let audit = |world: &World, data: &Path| {
        let mut command = service("audit", &world.plane.audit_settings());
        command.env("HOLDFAST_ADMIN_LISTEN", free()).env("HOLDFAST_LISTEN", free()).env("HOLDFAST_DATA", data);
        Said::by_program(&command.output().expect("it runs"))
    };
    let data = world.plane.folder().join("audit");
    let said = audit(world, &data);
    world.refused("log-locked", "another audit service", Leaves::Nothing, &said);
    let copy = world.plane.folder().join("audit-copy");
    fs::create_dir(&copy).expect("the folder is ours");
    let segments = fs::read_dir(&data).expect("it is there").flatten().map(|entry| entry.path());
    let segment = segments.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).max().expect("a segment");
    let file = copy.join(segment.file_name().expect("a name"));
    fs::write(&file, "{\"no\": \"entry\"}\n").expect("the folder is ours");
    let said = audit(world, &copy);
    world.refused("log-damaged", &file.display().to_string(), Leaves::Nothing, &said);
    assert_eq!(fs::read_to_string(&file).expect("it is there"), "{\"no\": \"entry\"}\n", "it was touched");
}
