//! The README's commands, typed as they stand there: what a comment promises is what is answered.

use std::fs;
use std::process::Command;

use holdfast_suite::plane::{Plane, root};

/// Words that a comment may begin with, and with what exit code the command then ends.
const ANSWERS: [(&str, i32); 4] = [("allowed", 0), ("denied", 0), ("dropped", 1), ("passed", 0)];

/// Runs the blocks of these sections against a plane, line by line in one shell's words.
pub(crate) fn commands_answer_as_they_say(plane: &Plane) {
    let mut ran = 0;
    for section in ["## Two commands", "## First question", "## First edit"] {
        let mut settings = String::new();
        for line in block(section) {
            let (command, comment) =
                line.split_once(" #").map_or((line.as_str(), ""), |(command, comment)| (command, comment.trim()));
            let command = command.trim();
            if command.starts_with("./ops/up") || command.starts_with(". .holdfast") || command.is_empty() {
                continue;
            }
            if command.split_once('=').is_some_and(|(name, _)| name.chars().all(char::is_alphabetic)) {
                settings = format!("{settings}{command}; ");
                continue;
            }
            ran += 1;
            runs(plane, &settings, command, comment);
        }
    }
    assert!(ran > 12, "{ran} commands: they are found");
}

fn runs(plane: &Plane, settings: &str, command: &str, comment: &str) {
    let env = plane.folder().join("env");
    let script = format!("set -u; . {}; {settings}{command}", env.display());
    let output = Command::new("bash").args(["-c", &script]).current_dir(root()).output().expect("bash can be run");
    let (said, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let promised = ANSWERS.iter().find(|(word, _)| comment.starts_with(word));
    let code = promised.map_or(0, |(_, code)| *code);
    assert_eq!(output.status.code(), Some(code), "`{command}` # {comment}\n{said}\n{words}");
    if let Some((word, _)) = promised {
        assert!(said.contains(word), "`{command}` promises {word}\n{said}\n{words}");
    }
}

/// The lines of the first block of shell commands that tells what to do below a heading, all of them up to the next heading.
fn block(heading: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("README.md")).expect("the README is there");
    let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("the README has no {heading}"));
    let section = rest.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let lines: Vec<String> = blocks.flat_map(str::lines).map(str::to_owned).collect();
    assert!(!lines.is_empty(), "{heading} has commands");
    lines
}
