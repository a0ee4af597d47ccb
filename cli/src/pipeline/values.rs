// SPDX-License-Identifier: GPL-2.0

//! The values of stages' options: text, or a file, to what it means.
//!
//! Owns their syntax and the messages about it. It never says what a key is.

use crate::failure::{Failure, Outcome};
use crate::sys::KEY_LEN;
use crate::units::parse_hex;
use idc::function::filter::MAX_RECORD_LEN;
use idc::function::Records;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of an initial counter block.
pub const IV_LEN: usize = 16;

/// The records that `--record-size` describes.
pub(super) fn record_size(text: &str) -> Result<Records, String> {
    let size = crate::units::parse_size(text)?;
    match u32::try_from(size) {
        Ok(size) if (1..=MAX_RECORD_LEN as u32).contains(&size) => Ok(Records::Fixed { size }),
        _ => Err("a record has 1 to 65536 bytes".to_owned()),
    }
}

/// One byte, as itself or as an escape.
pub(super) fn delimiter(text: &str) -> Result<u8, String> {
    let byte = match text.as_bytes() {
        [byte] => *byte,
        b"\\t" => b'\t',
        b"\\\\" => b'\\',
        [b'\\', b'x', digits @ ..] if digits.len() == 2 => match parse_hex(&text[2..])?[..] {
            [byte] => byte,
            _ => return Err("\\x takes two hex digits".into()),
        },
        _ => {
            return Err(format!(
                "{text:?} is not one byte; escapes are \\t \\\\ \\xHH"
            ))
        }
    };
    if byte == b'\n' {
        return Err("a newline ends records and cannot separate columns".into());
    }
    Ok(byte)
}

/// An initial counter block in hex digits.
pub(super) fn parse_iv(text: &str) -> Result<[u8; IV_LEN], String> {
    let bytes = parse_hex(text)?;
    let len = bytes.len();
    bytes.try_into().map_err(|_| {
        format!(
            "{len} bytes; an IV has {IV_LEN}, which are {} hex digits",
            2 * IV_LEN
        )
    })
}

/// Reads a key file. The message never tells what is in it.
pub(super) fn read_key(path: &Path) -> Outcome<[u8; KEY_LEN]> {
    let failed = |error: std::io::Error| {
        Failure::io(format!("key file {}", path.display()), &error).remedy(format!(
            "head -c {KEY_LEN} /dev/urandom > key, for a new one"
        ))
    };
    let mut bytes = Vec::new();
    // A little more than any key in hex would be enough to say what is wrong.
    File::open(path)
        .and_then(|file| file.take(1024).read_to_end(&mut bytes))
        .map_err(failed)?;
    let text: Vec<u8> = bytes
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    let in_hex = text.len() == 2 * KEY_LEN && text.iter().all(u8::is_ascii_hexdigit);
    let len = bytes.len();
    bytes.try_into().map_err(|_| {
        let at_least = if len == 1024 { "at least " } else { "" };
        Failure::new(format!(
            "key file {} has {at_least}{len} bytes: a key has {KEY_LEN}",
            path.display()
        ))
        .remedy(if in_hex {
            format!(
                "xxd -r -p {} > key, as keys are raw bytes and this is hex",
                path.display()
            )
        } else {
            format!("head -c {KEY_LEN} /dev/urandom > key, for a new one")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delimiter_is_one_byte_and_not_a_newline() {
        assert_eq!(delimiter(";"), Ok(b';'));
        assert_eq!(delimiter("\\"), Ok(b'\\'));
        assert_eq!(delimiter("\\t"), Ok(9));
        assert_eq!(delimiter("\\x1F"), Ok(0x1f));
        for text in [
            "", ";;", "ä", "\n", "\\x0a", "\\x", "\\x1", "\\xgg", "\\x123", "\\n",
        ] {
            assert!(delimiter(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_iv_has_32_hex_digits() {
        assert_eq!(
            parse_iv("000102030405060708090a0b0c0d0e0f").unwrap()[15],
            15
        );
        for text in [
            "",
            "00",
            "000102030405060708090a0b0c0d0e0",
            "000102030405060708090a0b0c0d0e0f00",
        ] {
            assert!(parse_iv(text).is_err(), "{text:?}");
        }
    }
}
