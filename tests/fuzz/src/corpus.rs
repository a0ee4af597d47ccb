// SPDX-License-Identifier: GPL-2.0

//! Inputs as text, and making them smaller.
//!
//! Owns the format: one input a line, in hexadecimal; `#` begins a comment.

/// An input as a line.
#[must_use]
pub fn to_text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// All inputs of a text.
///
/// # Errors
/// The line that is none.
pub fn parse(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or("").trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let digits = line.as_bytes().chunks(2);
            let bytes = digits.map(|two| {
                let two = std::str::from_utf8(two).ok()?;
                u8::from_str_radix(two, 16).ok()
            });
            bytes
                .collect::<Option<Vec<u8>>>()
                .ok_or(format!("not hexadecimal: {line}"))
        })
        .collect()
}

/// The shortest and plainest input found, going from `bytes`, for which `still` holds.
pub fn minimise(bytes: &[u8], mut still: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = bytes.to_vec();
    let mut piece = best.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < best.len() {
            let mut shorter = best.clone();
            shorter.drain(at..(at + piece).min(best.len()));
            if still(&shorter) {
                best = shorter;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    for at in 0..best.len() {
        let mut plainer = best.clone();
        plainer[at] = 0;
        if plainer != best && still(&plainer) {
            best = plainer;
        }
    }
    best
}
