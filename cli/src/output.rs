// SPDX-License-Identifier: GPL-2.0

//! How csdctl speaks: tables and lines for people, one versioned JSON schema for programs.
//!
//! Owns the two streams and what may go to which. What a command has to say is the command's.

use crate::failure::{Exit, Failure, Outcome};
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Version of the JSON output: changes only where a member changes its meaning or goes away.
pub const SCHEMA: &str = "csd/1";

/// For whom the output is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and lines for people
    #[default]
    Human,
    /// One JSON object (monitor, msg recv: one a line), see the schema files
    Json,
    /// mesh show only: a graph for Graphviz
    Dot,
    /// mesh show only: a picture
    Svg,
}

impl Format {
    /// Whether it is a picture, which only few commands have.
    #[must_use]
    pub fn is_drawing(self) -> bool {
        matches!(self, Self::Dot | Self::Svg)
    }
}

/// What the streams are connected to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terminal {
    /// Standard output is a terminal.
    pub out: bool,
    /// Standard error is a terminal.
    pub err: bool,
    /// Colour is wanted (`NO_COLOR` is not set).
    pub color: bool,
}

/// Meaning that colour underlines, on a terminal; never the only carrier of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Fine.
    Good,
    /// Worth a look.
    Warning,
    /// Bad.
    Bad,
}

/// The two streams, and how to write to them.
pub struct Output<'a> {
    /// For whom it is.
    pub format: Format,
    /// What the streams are connected to.
    pub terminal: Terminal,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// A JSON document: the schema's version and the command's own members.
#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    #[serde(flatten)]
    body: &'a T,
}

/// A failure as JSON.
#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    message: &'a str,
    remedy: Option<&'a str>,
    drive: Option<&'a str>,
    stage: Option<&'a str>,
    errno: Option<String>,
    exit: u8,
}

impl<'a> Output<'a> {
    /// An output that writes to these two.
    pub fn new(
        format: Format,
        terminal: Terminal,
        out: &'a mut dyn Write,
        err: &'a mut dyn Write,
    ) -> Self {
        Self {
            format,
            terminal,
            out,
            err,
        }
    }

    /// Whether programs read the output.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Writes the command's document, if JSON is wanted.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn json<T: Serialize>(&mut self, body: &T) -> Outcome {
        if self.is_json() {
            let text = document(body)?;
            written(writeln!(self.out, "{text}").and_then(|()| self.out.flush()))?;
        }
        Ok(())
    }

    /// Writes a line, if people read the output.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn line(&mut self, text: &str) -> Outcome {
        if !self.is_json() {
            written(writeln!(self.out, "{text}").and_then(|()| self.out.flush()))?;
        }
        Ok(())
    }

    /// Writes bytes to standard output as they are.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn raw(&mut self, bytes: &[u8]) -> Outcome {
        written(self.out.write_all(bytes).and_then(|()| self.out.flush()))
    }

    /// Writes a remark to standard error, if people read the output. Standard error that cannot be
    /// written has nowhere to be reported to.
    pub fn note(&mut self, text: &str) {
        if !self.is_json() {
            let _ = writeln!(self.err, "{text}");
        }
    }

    /// What [`Output::line`] or [`Output::json`] would write, to standard error: for commands
    /// whose standard output carries data.
    ///
    /// # Errors
    /// `body` cannot be made JSON of.
    pub fn aside<T: Serialize>(&mut self, text: &str, body: &T) -> Outcome {
        let text = if self.is_json() {
            document(body)?
        } else {
            text.to_string()
        };
        let _ = writeln!(self.err, "{text}");
        Ok(())
    }

    /// Reports a failure; nothing where all has been said (the message is empty).
    pub fn failure(&mut self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        let _ = if self.is_json() {
            let body = ErrorDocument {
                error: ErrorBody {
                    message: &failure.message,
                    remedy: failure.remedy.as_deref(),
                    drive: failure.drive.as_deref(),
                    stage: failure.stage.as_deref(),
                    errno: failure.errno.map(|errno| format!("{errno:?}")),
                    exit: failure.exit as u8,
                },
            };
            match document(&body) {
                Ok(text) => writeln!(self.err, "{text}"),
                Err(_) => writeln!(self.err, "csdctl: {}", failure.message),
            }
        } else {
            let program = self.toned_err("csdctl:", Tone::Bad);
            let mut text = format!("{program} {}\n", failure.message);
            if let Some(remedy) = &failure.remedy {
                let _ = writeln!(text, "  try: {remedy}");
            }
            self.err.write_all(text.as_bytes())
        };
    }

    /// `text` in the colour of `tone` if standard output is a terminal that wants colour.
    pub fn toned(&self, text: &str, tone: Tone) -> String {
        paint(text, tone, self.terminal.out && self.terminal.color)
    }

    fn toned_err(&self, text: &str, tone: Tone) -> String {
        paint(text, tone, self.terminal.err && self.terminal.color)
    }
}

fn paint(text: &str, tone: Tone, color: bool) -> String {
    if !color {
        return text.to_string();
    }
    let code = match tone {
        Tone::Good => 32,
        Tone::Warning => 33,
        Tone::Bad => 31,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

fn document<T: Serialize>(body: &T) -> Outcome<String> {
    serde_json::to_string(&Document {
        schema: SCHEMA,
        body,
    })
    .map_err(|error| Failure::new(format!("cannot make JSON: {error}")))
}

/// A reader that went away, as `head` does, is no failure worth a message; the exit code tells.
fn written(result: io::Result<()>) -> Outcome {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new("").exit(Exit::Failure),
        _ => Failure::io("standard output", &error),
    })
}

/// A table for people: columns as wide as they must be, two blanks between them.
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A table with these headings; those that begin with `>` head columns of numbers, which are
    /// aligned to the right.
    pub fn new(headings: &[&str]) -> Self {
        Self {
            right: headings.iter().map(|text| text.starts_with('>')).collect(),
            rows: vec![headings
                .iter()
                .map(|text| text.trim_start_matches('>').to_string())
                .collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                if *right {
                    write!(line, "{cell:>width$}  ")?;
                } else {
                    write!(line, "{cell:<width$}  ")?;
                }
            }
            if index != 0 {
                writeln!(f)?;
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_widest_cells_and_has_no_trailing_blanks() {
        let mut table = Table::new(&["DRIVE", ">BYTES", "STATE"]);
        table.row(["csd0".into(), "1,024".into(), "ready".into()]);
        table.row(["csd10".into(), "7".into(), String::new()]);
        assert_eq!(
            table.to_string(),
            "DRIVE  BYTES  STATE\ncsd0   1,024  ready\ncsd10      7"
        );
    }

    #[test]
    fn colour_is_for_terminals_only() {
        assert_eq!(paint("fail", Tone::Bad, false), "fail");
        assert_eq!(paint("fail", Tone::Bad, true), "\x1b[31mfail\x1b[0m");
    }
}
