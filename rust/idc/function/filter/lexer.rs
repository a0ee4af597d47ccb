// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The symbols of the predicate language.
//!
//! Owns how a predicate is cut into words, texts and signs, and the escapes in texts. What they mean
//! together is [`super::predicate`]'s.

use super::predicate::{Operator, PredicateError, Reason};

/// What stands between the quotes of a literal, with its escapes known to be good.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// The bytes that the literal stands for.
    pub fn bytes(self) -> impl Iterator<Item = u8> + use<'a> {
        let mut tail = self.0;
        core::iter::from_fn(move || {
            let (byte, rest) = unescape(tail)?;
            tail = rest;
            Some(byte)
        })
    }
}

/// The number of a column, an offset or a length.
fn small_number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |number, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number.checked_mul(10)?.checked_add(u16::from(digit))
    })
}

/// The first byte that the inside of a literal stands for, and what follows it. Nothing at the end
/// or where there is no good escape.
fn unescape(inside: &[u8]) -> Option<(u8, &[u8])> {
    match inside {
        [b'\\', b'x', high, low, rest @ ..] => {
            let high = char::from(*high).to_digit(16)?;
            let low = char::from(*low).to_digit(16)?;
            Some((u8::try_from(high.wrapping_shl(4) | low).ok()?, rest))
        }
        [b'\\', b'\\', rest @ ..] => Some((b'\\', rest)),
        [b'\\', b'"', rest @ ..] => Some((b'"', rest)),
        [b'\\', b't', rest @ ..] => Some((b'\t', rest)),
        [b'\\', b'r', rest @ ..] => Some((b'\r', rest)),
        [b'\\', b'n', rest @ ..] => Some((b'\n', rest)),
        [b'\\', ..] | [] => None,
        [byte, rest @ ..] => Some((*byte, rest)),
    }
}

/// A symbol of the language.
pub(super) enum Token<'a> {
    Open,
    Close,
    Comma,
    Relation(Operator),
    Word(&'a [u8]),
    Text(Text<'a>),
    End,
}

/// Cuts a predicate into symbols.
pub(super) struct Lexer<'a> {
    pub(super) text: &'a [u8],
    /// Where the next symbol, or the space before it, begins. Never beyond the end.
    pub(super) at: usize,
}

impl<'a> Lexer<'a> {
    /// What has not been read yet.
    fn tail(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Fails because of what stands at `at`.
    pub(super) fn fail<T>(&self, at: usize, reason: Reason) -> Result<T, PredicateError> {
        Err(PredicateError {
            offset: offset(at),
            reason,
        })
    }

    /// The number that comes next, and where it begins; `reason` where there is none.
    pub(super) fn number(&mut self, reason: Reason) -> Result<(usize, u16), PredicateError> {
        match self.next()? {
            (at, Token::Word(digits)) => match small_number(digits) {
                Some(number) => Ok((at, number)),
                None => self.fail(at, reason),
            },
            (at, _) => self.fail(at, reason),
        }
    }

    /// The next symbol and where it begins.
    pub(super) fn next(&mut self) -> Result<(usize, Token<'a>), PredicateError> {
        let spaces = self
            .tail()
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
        self.at = self.at.saturating_add(spaces);
        let at = self.at;
        let (len, token) = match self.tail() {
            [] => (0, Token::End),
            [b'(', ..] => (1, Token::Open),
            [b')', ..] => (1, Token::Close),
            [b',', ..] => (1, Token::Comma),
            [b'=', ..] => (1, Token::Relation(Operator::Equal)),
            [b'!', b'=', ..] => (2, Token::Relation(Operator::NotEqual)),
            [b'<', ..] => (1, Token::Relation(Operator::Less)),
            [b'>', ..] => (1, Token::Relation(Operator::Greater)),
            [b'"', inside @ ..] => self.text(at, inside)?,
            tail => {
                let len = tail.iter().take_while(|&&byte| is_word(byte)).count();
                match tail.get(..len) {
                    Some(word) if len != 0 => (len, Token::Word(word)),
                    _ => return self.fail(at, Reason::UnexpectedByte),
                }
            }
        };
        self.at = at.saturating_add(len);
        Ok((at, token))
    }

    /// The quoted literal whose opening quote is at `at`, and its length with both quotes.
    fn text(&self, at: usize, inside: &'a [u8]) -> Result<(usize, Token<'a>), PredicateError> {
        let mut tail = inside;
        loop {
            let done = inside.len().saturating_sub(tail.len());
            match (tail.first(), unescape(tail)) {
                (Some(b'"'), _) => {
                    let text = Text(inside.get(..done).unwrap_or_default());
                    return Ok((done.saturating_add(2), Token::Text(text)));
                }
                (Some(_), Some((_, rest))) => tail = rest,
                (Some(_), None) => {
                    let backslash = at.saturating_add(1).saturating_add(done);
                    return self.fail(backslash, Reason::BadEscape);
                }
                (None, _) => return self.fail(at, Reason::UnclosedText),
            }
        }
    }
}

/// `at` as it is stored. Nothing is parsed beyond [`MAX_PREDICATE_LEN`], so every offset fits.
pub(super) fn offset(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

/// Whether `byte` may stand in a word or a number.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-')
}
