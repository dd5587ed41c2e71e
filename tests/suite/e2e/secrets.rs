//! Planted secrets: the bytes of every token and key of a whole plane are where they belong and nowhere else, with everything logged that can be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use holdfast_identity::https::{Client, Request};
use holdfast_identity::tls::{https, install_crypto_provider};
use holdfast_identity::{TrustRoots, https::Response};
use holdfast_suite::needles::{Found, Needles};
use holdfast_suite::plane::{Plane, root};
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderName};
use serde_json::json;

/// Ports of the admin listeners, as `ops/lib/plane.sh` says.
const ADMIN_PORTS: std::ops::RangeInclusive<u16> = 7090..=7094;
/// Tables that hold rows in every plane: the dump is one of them all.
const TABLES_MIN: usize = 20;

/// A token in a plane: what it is called and its text.
struct Token(&'static str, String);

/// What was said to us and may hold no secret: a place and bytes.
type Said = Vec<(String, Vec<u8>)>;

#[test]
fn bytes_of_tokens_and_keys_appear_in_no_subject_event_log_metric_or_table_but_where_they_belong() {
    install_crypto_provider();
    let estate = root().join("ops/lab/estates/small");
    let plane = Plane::start_logging(&["--estate", &estate.display().to_string()], "trace");
    let tokens = tokens(&plane);
    let mut said = enrolments(&plane, &tokens);
    said.extend(changes(&plane, &tokens));
    said.extend(requests(&plane, &tokens));
    said.extend(answers(&plane));
    said.extend(metrics(&plane));
    said.extend(tables(&plane));
    said.extend(processes(&plane));

    let needles = needles(&plane, &tokens);
    assert!(needles.len() > 20, "{} secrets are known", needles.len());
    search_finds(&plane, &needles, &tokens);
    let mut found: Vec<Found> = said.iter().flat_map(|(place, bytes)| needles.find(place, bytes)).collect();
    found.extend(needles.find_in(plane.folder()));
    found.extend(needles.find_in(&postgres_folder(&plane)));
    assert!(found.is_empty(), "{found:#?}");
}

/// Tokens of both kinds that are good, and some that no longer are.
fn tokens(plane: &Plane) -> Vec<Token> {
    let made = |name, arguments: &[&str]| {
        let output = plane.holdfast(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Token(name, String::from_utf8(output.stdout).expect("text").trim().to_owned())
    };
    let admin = fs::read_to_string(plane.folder().join("tokens/admin")).expect("ops/up made it");
    let revoked = made("a revoked enrolment token", &["enrol-token", "create"]);
    let listed = plane.ask(&["enrol-token", "list"]);
    let id = listed.pointer("/0/id").or_else(|| listed.pointer("/items/0/id")).and_then(|id| id.as_str());
    let id = id.unwrap_or_else(|| panic!("{listed}"));
    assert!(plane.holdfast(&["enrol-token", "revoke", id]).status.success());
    vec![
        Token("the first API token", admin.trim().to_owned()),
        made("an API token", &["api-token", "create", "reader", "--role", "viewer"]),
        made("an enrolment token", &["enrol-token", "create", "--uses", "5"]),
        revoked,
    ]
}

fn text<'a>(tokens: &'a [Token], name: &str) -> &'a str {
    tokens.iter().find(|token| token.0 == name).map(|token| token.1.as_str()).expect("it was made")
}

/// One host more by the agent itself, and hosts that are refused.
fn enrolments(plane: &Plane, tokens: &[Token]) -> Said {
    let pin = fs::read_to_string(plane.folder().join("keys/public/ca.pin")).expect("init made it");
    let door = fs::read_to_string(plane.folder().join("lab/lab.json")).unwrap_or_default();
    let gateway = gateway(plane);
    let mut said = vec![("the lab's record".to_owned(), door.into_bytes())];
    let cases = [
        ("an enrolment token", "one-more", true),
        ("an enrolment token", "one-more", false),
        ("a revoked enrolment token", "refused", false),
        ("an API token", "refused", false),
    ];
    for (number, (token, name, is_good)) in cases.into_iter().enumerate() {
        let file = plane.folder().join(format!("tokens/planted-{number}"));
        holdfast_identity::files::write_secret(&file, text(tokens, token).as_bytes()).expect("the folder is ours");
        let state = plane.folder().join(format!("planted-{number}"));
        let output =
            agent(plane, &["enrol", "--gateway", &gateway, "--ca-pin", pin.trim(), "--name", name], &file, &state);
        assert_eq!(output.status.success(), is_good, "{token}: {}", String::from_utf8_lossy(&output.stderr));
        fs::remove_file(file).expect("it was written");
        said.push((format!("the agent's words of {token}"), [output.stdout, output.stderr].concat()));
    }
    said
}

/// The agent's program in the control plane's namespace, at its loudest.
fn agent(plane: &Plane, arguments: &[&str], token: &Path, state: &Path) -> Output {
    let program = plane.program_of("gateway-agents-1").with_file_name("holdfast-agent");
    let mut all = vec!["exec", "@control", "--", "env", "HOLDFAST_LOG=trace"];
    let (program, token, state) =
        (program.display().to_string(), token.display().to_string(), state.display().to_string());
    all.push(&program);
    all.extend(arguments);
    all.extend(["--token-file", &token, "--state", &state]);
    plane.lab(&all)
}

/// Where an agents' door is, as the gateway itself tells agents.
fn gateway(plane: &Plane) -> String {
    let settings = plane.settings_of("gateway-agents-1");
    let list = settings.into_iter().find(|(name, _)| name == "HOLDFAST_AGENTS_GATEWAYS").expect("it is set").1;
    format!("https://{}", list.split(',').next().expect("one"))
}

/// Documents that are taken, and documents with a token in them, which are not.
fn changes(plane: &Plane, tokens: &[Token]) -> Said {
    let mut said = Vec::new();
    for (number, Token(name, token)) in tokens.iter().enumerate() {
        let file = plane.folder().join("planted.yaml");
        let labels = format!("{{planted: \"{number}\"}}");
        for (spec, is_good) in
            [(format!("{{labels: {labels}}}"), true), (format!("{{labels: {{planted: {token}}}}}"), false)]
        {
            let document = "apiVersion: holdfast.dev/v1\nkind: Namespace\nmetadata: {name: planted}\nspec: ";
            fs::write(&file, format!("{document}{spec}\n")).expect("the folder is ours");
            let output = plane.holdfast(&["apply", "-f", &file.display().to_string()]);
            assert_eq!(output.status.success(), is_good, "{name}: {}", String::from_utf8_lossy(&output.stderr));
            said.push((format!("apply with {name}"), [output.stdout, output.stderr].concat()));
        }
        fs::remove_file(file).expect("it was written");
    }
    said
}

/// Tokens where no token belongs: in paths, queries, bodies, ids and in the place of another kind.
fn requests(plane: &Plane, tokens: &[Token]) -> Said {
    let admin = text(tokens, "the first API token").to_owned();
    let mut said = Vec::new();
    for Token(name, token) in tokens {
        let apply = json!({ "sources": [{ "name": token, "text": token }], "expected_plan": token });
        let made = json!({ "name": token, "role": token });
        let enrol = json!({ "namespace": token, "owner": token, "region": token, "labels": { "planted": token } });
        let cases = [
            (Method::GET, format!("/v1/hosts/{token}"), None, &admin),
            (Method::GET, format!("/{token}"), None, &admin),
            (Method::GET, format!("/v1/objects?namespace={token}&kind={token}"), None, &admin),
            (Method::GET, format!("/v1/objects?{token}=1"), None, &admin),
            (Method::GET, format!("/v1/explain/flow?from={token}&to={token}&service={token}"), None, &admin),
            (Method::GET, format!("/v1/hosts?cursor={token}"), None, &admin),
            (Method::DELETE, format!("/v1/objects/Policy/default/{token}"), None, &admin),
            (Method::POST, "/v1/delete".to_owned(), Some(json!({ "objects": [token] })), &admin),
            (Method::POST, "/v1/apply".to_owned(), Some(apply), &admin),
            (Method::POST, "/v1/apply".to_owned(), Some(json!({ "sources": token })), &admin),
            (Method::POST, "/v1/api-tokens".to_owned(), Some(made), &admin),
            (Method::POST, "/v1/enrol-tokens".to_owned(), Some(enrol), &admin),
            (Method::POST, "/v1/enrol-tokens".to_owned(), Some(json!({ "uses": token })), &admin),
            (Method::GET, "/v1/audit/entries?since=".to_owned() + token, None, &admin),
            (Method::GET, "/v1/status".to_owned(), None, token),
        ];
        for (method, path, body, shown) in cases {
            let answer = ask(plane, method.clone(), &path, body, shown, token);
            let place = format!("the answer to {method} {} with {name}", path.replace(token.as_str(), "…"));
            let heads = format!("{:?}", answer.headers);
            said.push((place, [answer.body.to_vec(), heads.into_bytes()].concat()));
        }
    }
    said
}

fn ask(plane: &Plane, method: Method, path: &str, body: Option<serde_json::Value>, shown: &str, id: &str) -> Response {
    let env = fs::read_to_string(plane.folder().join("env")).expect("ops/up made it");
    let api = env.lines().find_map(|line| line.strip_prefix("export HOLDFAST_API=")).expect("it is told");
    let roots = TrustRoots::load(&plane.folder().join("keys/public/ca.pem")).expect("init made it");
    let client = Client::new(https(&roots).expect("a configuration"));
    let request = Request::new(method, format!("{api}{path}")).bearer(shown).expect("a header");
    let request = request.header(CONTENT_TYPE, "application/json").expect("a header");
    // An id of the client's own choice comes back and is logged: not one like this.
    let request = request.header(HeaderName::from_static("x-request-id"), id).expect("a header");
    let request = request.body(body.map(|body| body.to_string()).unwrap_or_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(client.request(request)).expect("the API answers")
}

/// What the command line shows of everything that there is.
fn answers(plane: &Plane) -> Said {
    let host = plane.hosts().first().expect("a host").clone();
    let commands: [&[&str]; 12] = [
        &["status"],
        &["get", "hosts", "-o", "json"],
        &["get", "objects", "-o", "json"],
        &["get", "namespaces", "-o", "yaml"],
        &["get", "enrol-tokens", "-o", "json"],
        &["get", "api-tokens", "-o", "json"],
        &["get", "operations", "-o", "json"],
        &["describe", "host", &host],
        &["diff", &host],
        &["audit", "tail"],
        &["audit", "checkpoint"],
        &["rebuild", "--check", "-o", "json"],
    ];
    let mut said = Vec::new();
    for command in commands {
        let output = plane.holdfast(command);
        said.push((format!("holdfast {}", command.join(" ")), [output.stdout, output.stderr].concat()));
    }
    for service in ["renderer", "audit", "gateway-agents-1", "gateway-operators"] {
        // What a service says of its own settings.
        let mut command = Command::new(plane.program_of(service));
        let output = command.arg("config").env_clear().envs(plane.settings_of(service)).output().expect("it runs");
        assert!(output.status.success(), "{service}: {}", String::from_utf8_lossy(&output.stderr));
        said.push((format!("the settings of {service}"), [output.stdout, output.stderr].concat()));
    }
    said
}

/// Metrics and health of every service.
fn metrics(plane: &Plane) -> Said {
    let mut said = Vec::new();
    for port in ADMIN_PORTS {
        for path in ["metrics", "readyz", "version"] {
            let script = format!(
                "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /{path} HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3"
            );
            let output = plane.lab(&["exec", "@control", "--", "timeout", "10", "bash", "-c", &script]);
            assert!(output.stdout.starts_with(b"HTTP/1.1 "), "{port}/{path}: {output:?}");
            said.push((format!("{path} of port {port}"), output.stdout));
        }
    }
    said
}

fn postgres_folder(plane: &Plane) -> PathBuf {
    let values = fs::read_to_string(plane.folder().join("plane.env")).expect("ops/up made it");
    values.lines().find_map(|line| line.strip_prefix("POSTGRES_FOLDER=")).expect("it is told").into()
}

/// Every row of every table, as text.
fn tables(plane: &Plane) -> Said {
    let socket = postgres_folder(plane).join("socket");
    let bin = std::env::var("HOLDFAST_POSTGRES_BIN").expect("HOLDFAST_POSTGRES_BIN names Postgres; run ./ops/test");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(Path::new(&bin).join("pg_dump"));
    command.args(["--data-only", "--username=postgres", "--dbname=holdfast", "--port=5432", "--host"]).arg(socket);
    let output = command.current_dir("/").stdin(Stdio::null()).output().expect("pg_dump runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.matches("\nCOPY public.").count() >= TABLES_MIN, "{} bytes are not all tables", text.len());
    // What the text has of an octet string is its hexadecimal.
    vec![("a table of Postgres".to_owned(), text.into_bytes())]
}

/// The arguments and the environment of every process of the plane.
fn processes(plane: &Plane) -> Said {
    let folder = plane.folder().display().to_string();
    let mut said = Vec::new();
    for entry in fs::read_dir("/proc").expect("this is Linux").flatten() {
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let both = [read("cmdline"), vec![b'\n'], read("environ")].concat();
        if String::from_utf8_lossy(&both).contains(&folder) {
            said.push((format!("arguments and environment of {}", entry.path().display()), both));
        }
    }
    assert!(said.len() > 8, "{} processes are not all", said.len());
    said
}

/// Every secret of the plane, each with the files in which it may be.
fn needles(plane: &Plane, tokens: &[Token]) -> Needles {
    let mut needles = Needles::default();
    for Token(name, token) in tokens {
        let home = if *name == "the first API token" { vec![plane.folder().join("tokens/admin")] } else { Vec::new() };
        needles.add(name, token.as_bytes(), &home);
    }
    // The server of Postgres is another user, and has its own copy of its own key.
    let adopted = postgres_folder(plane).join("data/postgres.key.pem");
    let servers = vec![plane.folder().join("keys/postgres/postgres.key.pem"), adopted];
    for path in files(plane.folder()) {
        let key = fs::read(&path).unwrap_or_default();
        let name = path.strip_prefix(plane.folder()).unwrap_or(&path).display().to_string();
        if key.starts_with(b"-----BEGIN PRIVATE KEY-----") || name.ends_with(".key") {
            let homes = if path.ends_with("postgres.key.pem") { servers.clone() } else { vec![path.clone()] };
            assert_private(&path);
            needles.add_key(&name, &key, &homes);
        }
    }
    needles
}

/// A secret's file is its owner's alone.
fn assert_private(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{}", path.display());
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

/// The search finds a secret that somebody puts into a log, a table or a subject, in the forms that it would have there.
fn search_finds(plane: &Plane, needles: &Needles, tokens: &[Token]) {
    let Token(name, token) = tokens.last().expect("a token");
    let canary = plane.folder().join("run/canary.log");
    for (form, line) in [("raw", token.clone()), ("hex", token.bytes().map(|byte| format!("{byte:02x}")).collect())] {
        fs::write(&canary, format!("2026-01-01T00:00:00Z TRACE somewhere: read text={line} and more\n")).expect("ours");
        let found = needles.find_in(plane.folder());
        assert!(found.iter().any(|found| found.secret == *name && found.form == form), "{form}: {found:?}");
    }
    let key =
        files(&plane.folder().join("keys")).into_iter().find(|path| path.ends_with("renderer/desired-signing.key"));
    let key = fs::read(key.expect("init made it")).expect("it is there");
    fs::write(&canary, key).expect("ours");
    let found = needles.find_in(&canary);
    assert!(found.iter().any(|found| found.secret.ends_with("desired-signing.key")), "{found:?}");
    fs::remove_file(canary).expect("ours");
}
