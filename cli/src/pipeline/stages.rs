// SPDX-License-Identifier: GPL-2.0

//! The language of `STAGES`: which functions, with which options, on which drives.
//!
//! Owns the grammar and where a text breaks it. It knows no function and no option: these are
//! looked up in [`super::options`].
//!
//! # Grammar
//!
//! In EBNF (ISO/IEC 14977); blanks around any symbol of the first five rules mean nothing:
//!
//! ```text
//! stages   = stage , { "," , stage } ;
//! stage    = function , [ "(" , [ option , { "," , option } ] , ")" ] , [ "@" , drive ] ;
//! function = word ;
//! option   = word , "=" , value ;
//! drive    = quoted | ? bytes other than "," ? ;          (* csd1, an NQN, a PCI address *)
//! word     = letter , { letter | digit | "-" | "_" } ;
//! value    = { quoted | group | ? byte other than "," "(" ")" or '"' ? } ;
//! group    = "(" , { quoted | group | ? byte other than "(" ")" or '"' ? } , ")" ;
//! quoted   = '"' , { ? byte other than '"' or "\" ? | "\" , ? any byte ? } , '"' ;
//! ```
//!
//! So `where=col(3) = "a,b)"` needs no further quoting. A value that is one `quoted` and nothing else
//! stands for what is between the quotes, `\"` and `\\` for `"` and `\`; the value of `where` is taken
//! as it stands, as quotes have a meaning in predicates.

use crate::failure::Failure;
use std::fmt;

/// A stage as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSpec {
    /// Name of the function.
    pub function: String,
    /// Where that stands, in bytes from the start.
    pub at: usize,
    /// Its options, in order.
    pub options: Vec<StageOption>,
    /// What follows `@`.
    pub drive: Option<String>,
}

/// An option of a stage as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageOption {
    /// Its name.
    pub name: String,
    /// Where that stands.
    pub at: usize,
    /// Its value, without the blanks around it.
    pub value: String,
    /// Where that stands.
    pub value_at: usize,
}

impl StageOption {
    /// The value without the quotes around it, if it is one quoted text.
    pub fn unquoted(&self) -> String {
        unquote(&self.value)
    }
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Bytes from the start.
    pub at: usize,
    /// What is wrong there.
    pub message: String,
}

impl SyntaxError {
    /// Something wrong at `at`.
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }

    /// The failure to be reported, with a mark under the place in `text`.
    pub fn failure(&self, what: &str, text: &str) -> Failure {
        Failure::usage(format!(
            "{what}: {}\n{}",
            self.message,
            Marked { text, at: self.at }
        ))
    }
}

/// A text with a mark under one of its bytes.
struct Marked<'a> {
    text: &'a str,
    at: usize,
}

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A text of several lines would not line up.
        let shown: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let before = self
            .text
            .char_indices()
            .take_while(|(index, _)| *index < self.at)
            .count();
        write!(f, "  {shown}\n  {:before$}^", "")
    }
}

/// Reads `text`.
///
/// # Errors
/// It breaks the grammar.
pub fn parse(text: &str) -> Result<Vec<StageSpec>, SyntaxError> {
    let mut parser = Parser { text, at: 0 };
    let mut stages = vec![parser.stage()?];
    while parser.take(',') {
        stages.push(parser.stage()?);
    }
    parser.skip_blanks();
    if parser.at < text.len() {
        return Err(parser.error("expected \",\" and another stage, or the end"));
    }
    Ok(stages)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, message: &str) -> SyntaxError {
        SyntaxError::new(self.at, message)
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes `symbol` and the blanks before it, if it comes next.
    fn take(&mut self, symbol: char) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    fn word(&mut self, what: &str) -> Result<(usize, String), SyntaxError> {
        self.skip_blanks();
        let rest = self.rest();
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let end = rest.find(|c| !good(c)).unwrap_or(rest.len());
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(self.error(&format!("expected {what}")));
        }
        let at = self.at;
        self.at += end;
        Ok((at, rest[..end].to_string()))
    }

    fn stage(&mut self) -> Result<StageSpec, SyntaxError> {
        let (at, function) = self.word("the name of a function")?;
        let mut options = Vec::new();
        if self.take('(') && !self.take(')') {
            loop {
                options.push(self.option()?);
                if self.take(')') {
                    break;
                }
                if !self.take(',') {
                    return Err(self.error("expected \",\" or \")\" after an option"));
                }
            }
        }
        let drive = if self.take('@') {
            Some(self.drive()?)
        } else {
            None
        };
        Ok(StageSpec {
            function,
            at,
            options,
            drive,
        })
    }

    fn option(&mut self) -> Result<StageOption, SyntaxError> {
        let (at, name) = self.word("the name of an option")?;
        if !self.take('=') {
            return Err(self.error("expected \"=\" and the value of the option"));
        }
        self.skip_blanks();
        let value_at = self.at;
        let mut open = Vec::new();
        loop {
            let rest = self.rest();
            match rest.chars().next() {
                None => match open.last() {
                    Some(at) => {
                        return Err(SyntaxError::new(*at, "this parenthesis is never closed"))
                    }
                    None => return Err(self.error("expected \")\" after the last option")),
                },
                Some('"') => self.at += quoted(rest).map_err(|message| self.error(message))?,
                Some(',' | ')') if open.is_empty() => break,
                Some(symbol) => {
                    match symbol {
                        '(' => open.push(self.at),
                        ')' => drop(open.pop()),
                        _ => {}
                    }
                    self.at += symbol.len_utf8();
                }
            }
        }
        let value = self.text[value_at..self.at].trim_end().to_string();
        if value.is_empty() {
            return Err(SyntaxError::new(
                value_at,
                format!("{name} has no value; quote values that contain \",\" or \")\""),
            ));
        }
        Ok(StageOption {
            name,
            at,
            value,
            value_at,
        })
    }

    fn drive(&mut self) -> Result<String, SyntaxError> {
        self.skip_blanks();
        let rest = self.rest();
        let end = if rest.starts_with('"') {
            quoted(rest).map_err(|message| self.error(message))?
        } else {
            rest.find(',').unwrap_or(rest.len())
        };
        let drive = unquote(rest[..end].trim_end());
        if drive.is_empty() {
            return Err(self.error("expected a drive: its name, its NQN or its PCI address"));
        }
        self.at += end;
        Ok(drive)
    }
}

/// Length of the quoted text that `text` begins with, both quotes included.
fn quoted(text: &str) -> Result<usize, &'static str> {
    let mut escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Ok(index + 1),
            _ => {}
        }
    }
    Err("this quote is never closed")
}

fn unquote(text: &str) -> String {
    if !text.starts_with('"') || quoted(text) != Ok(text.len()) {
        return text.to_string();
    }
    let mut out = String::new();
    let mut chars = text[1..text.len() - 1].chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('\\', Some(next @ ('"' | '\\'))) => {
                out.push(next);
                chars.next();
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(stage: &StageSpec, name: &str) -> String {
        stage
            .options
            .iter()
            .find(|option| option.name == name)
            .unwrap()
            .value
            .clone()
    }

    #[test]
    fn bare_functions_are_stages_that_any_drive_may_run() {
        let stages = parse(" filter , encrypt ").unwrap();
        assert_eq!(stages.len(), 2);
        assert_eq!(stages[0].function, "filter");
        assert_eq!(stages[1].function, "encrypt");
        assert_eq!(stages[1].at, 10);
        assert!(stages
            .iter()
            .all(|stage| stage.drive.is_none() && stage.options.is_empty()));
    }

    #[test]
    fn parentheses_commas_and_quotes_nest_inside_a_predicate() {
        let text = r#"filter(where=(col(3) = "a,b)\"(" or not (col(1) < 5)),delimiter=;)@csd1,encrypt(key-file=k)@csd2"#;
        let stages = parse(text).unwrap();
        assert_eq!(
            option(&stages[0], "where"),
            r#"(col(3) = "a,b)\"(" or not (col(1) < 5))"#
        );
        assert_eq!(option(&stages[0], "delimiter"), ";");
        assert_eq!(stages[0].drive.as_deref(), Some("csd1"));
        assert_eq!(option(&stages[1], "key-file"), "k");
        assert_eq!(stages[1].drive.as_deref(), Some("csd2"));
    }

    #[test]
    fn a_drive_may_be_an_nqn_or_a_pci_address_and_may_be_quoted() {
        let stages =
            parse(r#"checksum@nqn.2019-08.org.qemu:csd-b,checksum@0000:03:00.0,checksum@"a,b""#)
                .unwrap();
        let drives: Vec<_> = stages
            .iter()
            .map(|stage| stage.drive.clone().unwrap())
            .collect();
        assert_eq!(
            drives,
            ["nqn.2019-08.org.qemu:csd-b", "0000:03:00.0", "a,b"]
        );
    }

    #[test]
    fn a_quoted_value_stands_for_what_is_between_its_quotes() {
        let stages =
            parse(r#"filter(delimiter=",", where="x"),encrypt(key-file="a \"b\" \\ \t)")"#)
                .unwrap();
        assert_eq!(stages[0].options[0].unquoted(), ",");
        assert_eq!(stages[1].options[0].unquoted(), r#"a "b" \ \t)"#);
    }

    #[test]
    fn empty_parentheses_are_no_options() {
        assert_eq!(
            parse("checksum()@csd0").unwrap(),
            parse("checksum()@csd0").unwrap()
        );
        assert!(parse("checksum( )").unwrap()[0].options.is_empty());
    }

    #[test]
    fn what_breaks_the_grammar_is_shown_where_it_does() {
        for (text, at) in [
            ("", 0),
            ("filter,", 7),
            ("filter,,encrypt", 7),
            ("3filter", 0),
            ("filter encrypt", 7),
            ("filter(where", 12),
            ("filter(where=", 13),
            ("filter(where=)", 13),
            ("filter(where=(x)", 16),
            ("filter(where=((x)", 13),
            ("filter(where=\"x)", 13),
            ("filter(a=b c=d)e", 15),
            ("filter(=b)", 7),
            ("filter@", 7),
            ("filter@,encrypt", 7),
            ("filter@\"csd0\"x", 13),
        ] {
            assert_eq!(parse(text).map_err(|error| error.at), Err(at), "{text:?}");
        }
    }

    #[test]
    fn the_mark_stands_under_the_character() {
        let failure = SyntaxError::new(5, "no").failure("stages", "äöfilter");
        assert_eq!(failure.message, "stages: no\n  äöfilter\n     ^");
    }
}
