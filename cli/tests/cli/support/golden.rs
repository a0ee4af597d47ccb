// SPDX-License-Identifier: GPL-2.0

//! Transcripts: files in `tests/golden/` with commands and what they must print.
//!
//! A line `$ csdctl …` is a command, in shell quotes; what follows, up to an empty line before the
//! next command, is its standard output, its standard error (`! ` before each line) and, unless it is
//! 0, its exit code (`? N`). `$TMP` stands for a directory of the test's own. Lines that begin with
//! `#` are comments. With `CSDCTL_BLESS=1` in the environment files are rewritten, to be checked by
//! hand.

use super::Machine;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Runs the commands of `tests/golden/NAME.txt` on `machine`, one after the other, and compares.
pub fn check(name: &str, machine: &Machine) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    let expected = std::fs::read_to_string(&path).unwrap();
    let tmp = machine.dir.path().to_str().unwrap();
    let mut found = String::new();
    for line in expected.lines() {
        if line.starts_with('#') || (line.is_empty() && !found.contains("$ ")) {
            let _ = writeln!(found, "{line}");
        }
        let Some(command) = line.strip_prefix("$ ") else {
            continue;
        };
        let words = split(&command.replace("$TMP", tmp));
        assert_eq!(words[0], "csdctl", "{name}: {line}");
        let ran = machine.run(&words[1..].iter().map(String::as_str).collect::<Vec<_>>());
        let _ = writeln!(found, "{line}");
        for line in String::from_utf8_lossy(&ran.out).lines() {
            let _ = writeln!(found, "{line}");
        }
        for line in ran.err.lines() {
            let _ = writeln!(found, "! {line}");
        }
        if ran.exit as u8 != 0 {
            let _ = writeln!(found, "? {}", ran.exit as u8);
        }
        found.push('\n');
    }
    let found = found.replace(tmp, "$TMP");
    let found = found.trim_end().to_string() + "\n";
    if std::env::var_os("CSDCTL_BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    for (number, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{name}.txt, line {}", number + 1);
    }
    assert_eq!(
        found.lines().count(),
        expected.lines().count(),
        "{name}.txt: lines"
    );
}

/// Words in shell quotes: single ones, and double ones without escapes.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_with(String::new);
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_with(String::new).push(c),
        }
    }
    assert!(quote.is_none(), "open quote: {line}");
    words.extend(word);
    words
}
