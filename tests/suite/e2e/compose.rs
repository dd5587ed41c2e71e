//! `docker-compose.yml`: that it says what the estate and the toolchain say, and (long) that it works, with every compose that is to be had.
//!
//! - `HOLDFAST_COMPOSE` names the programs, with blanks between them; `./ops/test --long compose` installs them and sets it.
//! - No image is pulled: the file's variables point at stand-ins, so what the public images do beyond what the file uses of them is not shown.

mod stack;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use holdfast_documents::Source;
use holdfast_documents::estate::read_own;
use holdfast_suite::plane::root;

fn text(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_demos_hosts_are_those_of_its_estate_each_with_a_service_and_a_volume() {
    let folder = root().join("ops/lab/estates/harbour");
    let source = Source { name: "estate.yaml".to_owned(), text: text("ops/lab/estates/harbour/estate.yaml") };
    let estate = read_own(&source, &mut |name| fs::read_to_string(folder.join(name)).ok()).expect("it is ours");
    let hosts = &estate.intent_after(0).expect("an estate has a state").hosts;
    let list = |items: Vec<String>| if items.is_empty() { "-".to_owned() } else { items.join(",") };
    let of_estate: BTreeSet<[String; 4]> = hosts
        .values()
        .map(|host| {
            let labels = host.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let ports = host.ports.iter().map(|port| format!("{}={}/tcp", port.name, port.port)).collect();
            [host.namespace.to_string(), host.name.to_string(), list(labels), list(ports)]
        })
        .collect();

    let file = text("docker-compose.yml");
    let after = file.split_once("HOSTS: |\n").expect("the list is there").1;
    let listed = after.lines().take_while(|line| line.starts_with("        "));
    let listed: BTreeSet<[String; 4]> = listed
        .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .map(|words| words.try_into().expect("four words a line"))
        .collect();
    assert_eq!(listed, of_estate);
    for [_, name, ..] in &listed {
        assert!(file.contains(&format!("\n  {name}: {{<<: *agent, hostname: {name}, ")), "no service {name}");
        assert!(file.contains(&format!("\n  {name}: {{}}\n")), "no volume {name}");
    }
}

#[test]
fn an_image_is_built_by_the_rust_that_the_toolchain_file_names() {
    let toolchain = text("rust-toolchain.toml");
    let version = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")?.strip_suffix('"'));
    let image = format!("rust:{}-bookworm", version.expect("it names one"));
    assert!(text("ops/image/Dockerfile").contains(&format!("ARG RUST_IMAGE={image}\n")), "{image}");
    assert!(
        text("docker-compose.yml").contains(&format!("RUST_IMAGE: ${{HOLDFAST_RUST_IMAGE:-{image}}}\n")),
        "{image}"
    );
}

/// What an engine makes where it runs: interfaces and chains by its names.
pub(crate) fn traces_of_docker() -> BTreeSet<String> {
    let lines = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let interfaces = lines("ip", &["-brief", "link"]).into_iter();
    let interfaces = interfaces.filter(|line| line.starts_with("docker") || line.starts_with("br-"));
    let chains = lines("nft", &["list", "ruleset"]).into_iter().filter(|line| line.contains("DOCKER"));
    interfaces.chain(chains).collect()
}

mod long_compose {
    use std::env;
    use std::path::PathBuf;

    use holdfast_suite::containers::Engine;

    use super::stack::Stack;
    use super::traces_of_docker;

    #[test]
    fn the_stack_converges_obeys_keeps_its_secrets_is_edited_and_leaves_nothing() {
        let programs = env::var("HOLDFAST_COMPOSE").expect("./ops/test sets HOLDFAST_COMPOSE");
        let programs: Vec<PathBuf> = programs.split_whitespace().map(PathBuf::from).collect();
        assert!(!programs.is_empty(), "no compose to try");
        let before = traces_of_docker();
        let engine = Engine::start();
        engine.make_stand_ins();
        for program in programs {
            let stack = Stack::new(&engine, program);
            eprintln!("{}", stack.version());
            stack.up();
            stack.is_healthy();
            stack.is_converged();
            stack.obeys();
            stack.rights_are_few();
            stack.ports_are_of_loopback();
            stack.secrets_are_kept();
            stack.an_edit_arrives_and_outlives_a_restart();
            stack.goes_without_a_trace();
        }
        let folder = engine.folder().to_owned();
        let left = engine.end();
        assert!(left.is_empty(), "the engine left {left:?}");
        assert_eq!(traces_of_docker(), before, "where the test is");
        assert!(!folder.exists(), "{} is still there", folder.display());
    }
}
