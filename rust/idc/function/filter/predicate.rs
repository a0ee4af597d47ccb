// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The predicate language of `filter`: its grammar, its parser, its errors.
//!
//! Owns what is and what is not a predicate. What becomes of one is the business of whoever
//! implements [`Emit`]: [`super::program`] makes a program of it, [`check`] only wants to know. The
//! parser keeps its own small stack, so a hostile predicate cannot exhaust the caller's.
//!
//! # Grammar
//!
//! In EBNF (ISO/IEC 14977). In the rules above `sp`, `sp` may stand before, between and after the
//! symbols; in the rules below it may not.
//!
//! ```text
//! predicate  = conjunction , { "or" , conjunction } ;
//! conjunction = negation , { "and" , negation } ;
//! negation   = { "not" } , ( comparison | "(" , predicate , ")" ) ;
//! comparison = field , ( relation , ( text | number ) | search , text )
//!            | integer , relation , number ;
//! field      = "col" , "(" , digits , ")"                (* 0 .. 65535 *)
//!            | "bytes" , place ;
//! integer    = ( "le" | "be" ) , place ;                 (* of 1 .. 8 bytes *)
//! place      = "(" , digits , "," , digits , ")" ;       (* offset and length, 0 .. 65535 *)
//! relation   = "=" | "!=" | "<" | ">" ;
//! search     = "contains" | "prefix" ;
//!
//! sp         = { " " | tab | line feed | carriage return } ;
//! number     = [ "+" | "-" ] , digits , [ "." , digits ] ;  (* see super::number for limits *)
//! text       = '"' , { plain | escape } , '"' ;
//! plain      = ? any byte but '"' and "\" ? ;
//! escape     = "\" , ( "\" | '"' | "t" | "r" | "n" | "x" , hex , hex ) ;
//! digits     = digit , { digit } ;
//! hex        = digit | "a" .. "f" | "A" .. "F" ;
//! ```
//!
//! `not` binds tighter than `and`, `and` tighter than `or`. Words are in lower case. A word or a
//! number ends at the first byte that is not a letter, a digit, `_`, `.`, `+` or `-`, so `1or` is one
//! (bad) number and `)or(` is fine.
//!
//! # Limits
//!
//! [`MAX_PREDICATE_LEN`] bytes, [`MAX_COMPARISONS`] comparisons, [`MAX_DEPTH`] open parentheses.

use super::lexer::{offset, Lexer, Token};
use super::number::Number;
use core::fmt;

pub use super::lexer::Text;

/// The longest predicate, in bytes.
pub const MAX_PREDICATE_LEN: usize = 1024;
/// The most comparisons in one predicate.
pub const MAX_COMPARISONS: usize = 64;
/// The most parentheses open at one place, those of `col(N)` not counted.
pub const MAX_DEPTH: usize = 32;

/// How a comparison compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Operator {
    /// `=`
    Equal = 0,
    /// `!=`
    NotEqual = 1,
    /// `<`
    Less = 2,
    /// `>`
    Greater = 3,
    /// `contains`: the text occurs somewhere in the column.
    Contains = 4,
    /// `prefix`: the column begins with the text.
    Prefix = 5,
}

/// What of a record is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `col(N)`: a column, from 1, or the record as a whole.
    Column(u16),
    /// `bytes(OFFSET,LENGTH)`: bytes of the record, from 0.
    Bytes(u16, u16),
    /// `le(OFFSET,LENGTH)`: an unsigned integer of at most 8 bytes, little endian.
    Little(u16, u16),
    /// `be(OFFSET,LENGTH)`: the same, big endian.
    Big(u16, u16),
}

impl Field {
    /// Whether it is a number by itself, not bytes.
    fn is_integer(self) -> bool {
        matches!(self, Self::Little(..) | Self::Big(..))
    }
}

/// What a field is compared with.
#[derive(Clone, Copy, Debug)]
pub enum Literal<'a> {
    /// A quoted literal; compares as bytes.
    Text(Text<'a>),
    /// An unquoted literal; compares as a number.
    Number(Number),
}

/// Where comparisons go as they are parsed, and how they are joined.
///
/// Comparisons are emitted from left to right.
pub trait Emit {
    /// A part of the predicate that has been emitted.
    type Part: Copy;

    /// A single comparison.
    ///
    /// # Errors
    /// [`Reason::TooManyComparisons`] where there is no room for it.
    fn comparison(
        &mut self,
        field: Field,
        operator: Operator,
        literal: Literal<'_>,
    ) -> Result<Self::Part, Reason>;

    /// The part that holds where `part` does not.
    fn not(&mut self, part: Self::Part) -> Self::Part;

    /// The part that holds where both do. `right` was emitted after `left`.
    fn and(&mut self, left: Self::Part, right: Self::Part) -> Self::Part;

    /// The part that holds where one of them does. `right` was emitted after `left`.
    fn or(&mut self, left: Self::Part, right: Self::Part) -> Self::Part;
}

/// Why something is not a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is longer than [`MAX_PREDICATE_LEN`].
    TooLong,
    /// It has more than [`MAX_COMPARISONS`] comparisons.
    TooManyComparisons,
    /// It has more than [`MAX_DEPTH`] parentheses open at this place.
    TooDeep,
    /// A comparison was expected.
    ExpectedComparison,
    /// `(` was expected after `col`, `bytes`, `le` or `be`.
    ExpectedColumnOpen,
    /// A number from 0 to 65535 was expected in `col(N)`.
    ExpectedColumnNumber,
    /// `)` was expected after the number of a column, or after a length.
    ExpectedColumnClose,
    /// An offset or a length from 0 to 65535 was expected.
    ExpectedPlace,
    /// `,` was expected between offset and length.
    ExpectedComma,
    /// An integer has 1 to 8 bytes.
    IntegerLength,
    /// Integers compare with numbers only.
    ExpectedNumber,
    /// An operator was expected after a column.
    ExpectedOperator,
    /// A literal was expected after an operator.
    ExpectedLiteral,
    /// A quoted literal was expected after `contains` or `prefix`.
    ExpectedText,
    /// An unquoted literal is not a number.
    BadNumber,
    /// A quoted literal has no end.
    UnclosedText,
    /// A backslash is followed by something that makes no escape.
    BadEscape,
    /// `and`, `or`, `)` or the end was expected after a comparison.
    ExpectedConnective,
    /// A parenthesis is never closed.
    UnclosedParenthesis,
    /// A parenthesis is closed that was never opened.
    UnopenedParenthesis,
    /// A byte that begins nothing.
    UnexpectedByte,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "a predicate has at most 1024 bytes",
            Self::TooManyComparisons => "a predicate has at most 64 comparisons",
            Self::TooDeep => "parentheses nest at most 32 deep",
            Self::ExpectedComparison => "expected a comparison such as col(3) = \"Lu\"",
            Self::ExpectedColumnOpen => "expected \"(\" here",
            Self::ExpectedColumnNumber => "expected the number of a column, 0 to 65535",
            Self::ExpectedColumnClose => "expected \")\" here",
            Self::ExpectedPlace => "expected an offset or a length, 0 to 65535",
            Self::ExpectedComma => "expected \",\" between offset and length",
            Self::IntegerLength => "an integer has 1 to 8 bytes",
            Self::ExpectedNumber => "le and be are compared with numbers, by =, !=, < or >",
            Self::ExpectedOperator => "expected =, !=, <, >, contains or prefix",
            Self::ExpectedLiteral => "expected a number, or text in double quotes",
            Self::ExpectedText => "contains and prefix take text in double quotes",
            Self::BadNumber => "not a decimal number; text goes in double quotes",
            Self::UnclosedText => "this text has no closing quote",
            Self::BadEscape => "the escapes are \\\\ \\\" \\t \\r \\n and \\xHH",
            Self::ExpectedConnective => "expected and, or, \")\" or the end",
            Self::UnclosedParenthesis => "this parenthesis is never closed",
            Self::UnopenedParenthesis => "this parenthesis was never opened",
            Self::UnexpectedByte => "nothing begins with this character",
        })
    }
}

/// Where and why something is not a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredicateError {
    /// The byte at which it goes wrong, 0 to the predicate's length.
    pub offset: u16,
    /// What is wrong there.
    pub reason: Reason,
}

impl fmt::Display for PredicateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "at byte {} of the predicate: {}",
            self.offset, self.reason
        )
    }
}

impl core::error::Error for PredicateError {}

/// Whether `predicate` is one.
///
/// # Errors
/// Where and why it is not.
pub fn check(predicate: &[u8]) -> Result<(), PredicateError> {
    parse(predicate, &mut Count(0))
}

/// An [`Emit`] that only counts.
struct Count(usize);

impl Emit for Count {
    type Part = ();

    fn comparison(&mut self, _: Field, _: Operator, _: Literal<'_>) -> Result<(), Reason> {
        if self.0 == MAX_COMPARISONS {
            return Err(Reason::TooManyComparisons);
        }
        self.0 = self.0.wrapping_add(1);
        Ok(())
    }

    fn not(&mut self, (): ()) {}
    fn and(&mut self, (): (), (): ()) {}
    fn or(&mut self, (): (), (): ()) {}
}

/// What has been parsed inside one pair of parentheses, or outside of all.
#[derive(Clone, Copy)]
struct Level<P> {
    /// Everything before the last `or`.
    alternatives: Option<P>,
    /// What has been joined by `and` since.
    conjunction: Option<P>,
    /// Whether an odd number of `not` stood before the parenthesis.
    negated: bool,
    /// Where the parenthesis was opened.
    opened_at: u16,
}

impl<P: Copy> Level<P> {
    const fn new(negated: bool, opened_at: u16) -> Self {
        Self {
            alternatives: None,
            conjunction: None,
            negated,
            opened_at,
        }
    }

    /// Joins `part` to what came since the last `or`.
    fn join(&mut self, part: P, emit: &mut impl Emit<Part = P>) {
        self.conjunction = Some(match self.conjunction {
            Some(left) => emit.and(left, part),
            None => part,
        });
    }

    /// Joins what came since the last `or` to what was before it: all of the level, if not empty.
    fn close(&mut self, emit: &mut impl Emit<Part = P>) -> Option<P> {
        self.alternatives = match (self.alternatives, self.conjunction.take()) {
            (Some(left), Some(right)) => Some(emit.or(left, right)),
            (left, right) => left.or(right),
        };
        self.alternatives
    }
}

/// Parses `predicate` and emits its parts.
///
/// # Errors
/// Where and why it is not a predicate. Parts may have been emitted by then.
pub fn parse<E: Emit>(predicate: &[u8], emit: &mut E) -> Result<(), PredicateError> {
    let mut lexer = Lexer {
        text: predicate,
        at: 0,
    };
    if predicate.len() > MAX_PREDICATE_LEN {
        return lexer.fail(MAX_PREDICATE_LEN, Reason::TooLong);
    }
    let mut outer = [Level::<E::Part>::new(false, 0); MAX_DEPTH];
    let mut depth = 0usize;
    let mut level = Level::<E::Part>::new(false, 0);
    let mut negated = false;
    loop {
        let (at, token) = lexer.next()?;
        let mut part = match token {
            Token::Word(b"not") => {
                negated = !negated;
                continue;
            }
            Token::Open => {
                let Some(slot) = outer.get_mut(depth) else {
                    return lexer.fail(at, Reason::TooDeep);
                };
                *slot = level;
                depth = depth.wrapping_add(1);
                level = Level::new(negated, offset(at));
                negated = false;
                continue;
            }
            Token::Word(word @ (b"col" | b"bytes" | b"le" | b"be")) => {
                comparison(&mut lexer, word, at, emit)?
            }
            _ => return lexer.fail(at, Reason::ExpectedComparison),
        };
        if negated {
            part = emit.not(part);
            negated = false;
        }
        level.join(part, emit);
        // After a comparison, parentheses may close; then the predicate goes on or ends.
        loop {
            let (at, token) = lexer.next()?;
            match token {
                Token::Word(b"and") => break,
                Token::Word(b"or") => {
                    level.close(emit);
                    break;
                }
                Token::Close => {
                    let above = depth.checked_sub(1).and_then(|above| {
                        depth = above;
                        outer.get(above)
                    });
                    let (Some(&above), Some(mut part)) = (above, level.close(emit)) else {
                        return lexer.fail(at, Reason::UnopenedParenthesis);
                    };
                    if level.negated {
                        part = emit.not(part);
                    }
                    level = above;
                    level.join(part, emit);
                }
                Token::End if depth == 0 => {
                    level.close(emit);
                    return Ok(());
                }
                Token::End => {
                    return lexer.fail(level.opened_at.into(), Reason::UnclosedParenthesis)
                }
                _ => return lexer.fail(at, Reason::ExpectedConnective),
            }
        }
    }
}

/// Parses what stands in the parentheses after `word`, and both of them.
fn field(lexer: &mut Lexer<'_>, word: &[u8]) -> Result<Field, PredicateError> {
    match lexer.next()? {
        (_, Token::Open) => (),
        (at, _) => return lexer.fail(at, Reason::ExpectedColumnOpen),
    }
    let field = if word == b"col" {
        Field::Column(lexer.number(Reason::ExpectedColumnNumber)?.1)
    } else {
        let (_, offset) = lexer.number(Reason::ExpectedPlace)?;
        match lexer.next()? {
            (_, Token::Comma) => (),
            (at, _) => return lexer.fail(at, Reason::ExpectedComma),
        }
        let (at, length) = lexer.number(Reason::ExpectedPlace)?;
        let field = match word {
            b"le" => Field::Little(offset, length),
            b"be" => Field::Big(offset, length),
            _ => Field::Bytes(offset, length),
        };
        if field.is_integer() && !(1..=8).contains(&length) {
            return lexer.fail(at, Reason::IntegerLength);
        }
        field
    };
    match lexer.next()? {
        (_, Token::Close) => Ok(field),
        (at, _) => lexer.fail(at, Reason::ExpectedColumnClose),
    }
}

/// Parses a comparison whose first word, at `start`, has been read.
fn comparison<E: Emit>(
    lexer: &mut Lexer<'_>,
    word: &[u8],
    start: usize,
    emit: &mut E,
) -> Result<E::Part, PredicateError> {
    let field = field(lexer, word)?;
    let operator = match lexer.next()? {
        (_, Token::Relation(relation)) => relation,
        (at, Token::Word(b"contains" | b"prefix")) if field.is_integer() => {
            return lexer.fail(at, Reason::ExpectedNumber)
        }
        (_, Token::Word(b"contains")) => Operator::Contains,
        (_, Token::Word(b"prefix")) => Operator::Prefix,
        (at, _) => return lexer.fail(at, Reason::ExpectedOperator),
    };
    let searches = matches!(operator, Operator::Contains | Operator::Prefix);
    let literal = match lexer.next()? {
        (at, Token::Text(_)) if field.is_integer() => {
            return lexer.fail(at, Reason::ExpectedNumber)
        }
        (_, Token::Text(text)) => Literal::Text(text),
        (at, _) if searches => return lexer.fail(at, Reason::ExpectedText),
        (at, Token::Word(word)) => match Number::parse(word) {
            Some(number) => Literal::Number(number),
            None => return lexer.fail(at, Reason::BadNumber),
        },
        (at, _) => return lexer.fail(at, Reason::ExpectedLiteral),
    };
    emit.comparison(field, operator, literal)
        .or_else(|reason| lexer.fail(start, reason))
}
