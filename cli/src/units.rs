// SPDX-License-Identifier: GPL-2.0

//! Numbers with units, as people write and read them.
//!
//! Owns parsing and formatting of sizes and durations. JSON never goes through here: it has raw
//! numbers.

use std::fmt::Write as _;
use std::time::Duration;

const UNITS: [(&str, u32); 5] = [
    ("KiB", 10),
    ("MiB", 20),
    ("GiB", 30),
    ("TiB", 40),
    ("PiB", 50),
];

/// Reads a number of bytes: `4096`, `64KiB`, `2MiB`. Also `64K`, `2M`, which mean the same.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err("a size is a whole number of bytes, or one with KiB, MiB, GiB or TiB".into());
    }
    let unit = unit.trim_start();
    let shift = if unit.is_empty() || unit == "B" {
        0
    } else {
        UNITS
            .iter()
            .find(|(name, _)| {
                unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(&name[..1])
            })
            .map(|(_, shift)| *shift)
            .ok_or_else(|| {
                format!("no unit {unit:?}: sizes come in B, KiB, MiB, GiB, TiB (powers of 1024)")
            })?
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| "more than 2^64 bytes".into())
}

/// [`parse_size`] for fields of 32 bits.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_size32(text: &str) -> Result<u32, String> {
    u32::try_from(parse_size(text)?).map_err(|_| "4 GiB or more".into())
}

/// Reads a time: `500ms`, `30s`, `2m`, `1h`; a plain number means seconds.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let number: u64 = digits
        .parse()
        .map_err(|_| "a time is a whole number with ms, s, m or h".to_string())?;
    let milliseconds = match unit.trim_start() {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("no unit {unit:?}: times come in ms, s, m, h")),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(|| "a time beyond all bounds".into())
}

/// A whole number with thousands separators: `1,831`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit that suits them: `64 MiB`, `1,831 KiB`, `28 B`. Whole units where that is
/// exact or there are enough digits, else one or two decimals.
pub fn size(bytes: u64) -> String {
    let (name, shift) = UNITS
        .iter()
        .rev()
        .find(|(_, shift)| bytes >= 1 << shift)
        .copied()
        .unwrap_or(("B", 0));
    let unit = 1_u64 << shift;
    if bytes % unit == 0 {
        return format!("{} {name}", count(bytes / unit));
    }
    let value = bytes as f64 / unit as f64;
    if value < 10.0 {
        format!("{value:.2} {name}")
    } else if value < 100.0 {
        format!("{value:.1} {name}")
    } else {
        format!("{value:.0} {name}")
    }
}

/// Nanoseconds in the unit that suits them: `12 ms`, `1.31 s`, `740 ns`.
pub fn time(nanoseconds: u64) -> String {
    let (scale, unit) = match nanoseconds {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    if nanoseconds % scale == 0 {
        return format!("{} {unit}", count(nanoseconds / scale));
    }
    let value = nanoseconds as f64 / scale as f64;
    if value < 10.0 {
        format!("{value:.2} {unit}")
    } else if value < 100.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

/// Bytes a second, from bytes and the time they took; `-` where no time passed.
pub fn rate(bytes: u64, nanoseconds: u64) -> String {
    match per_second(bytes, nanoseconds) {
        Some(rate) => format!("{}/s", size(rate)),
        None => "-".into(),
    }
}

/// Bytes a second, a whole number of them; `None` where no time passed.
pub fn per_second(bytes: u64, nanoseconds: u64) -> Option<u64> {
    let rate =
        u128::from(bytes) * 1_000_000_000 / u128::from(std::num::NonZero::new(nanoseconds)?.get());
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Reads hex digits, two a byte.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u32> = text
        .trim()
        .chars()
        .map(|c| c.to_digit(16).ok_or(c))
        .collect::<Result<_, _>>()
        .map_err(|c| format!("{c:?} is not a hex digit"))?;
    if digits.len() % 2 != 0 {
        return Err(format!(
            "{} hex digits do not make whole bytes",
            digits.len()
        ));
    }
    Ok(digits
        .chunks(2)
        .map(|pair| ((pair[0] << 4) | pair[1]) as u8)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_with_or_without_a_unit() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("64 KiB"), Ok(65_536));
        assert_eq!(parse_size("2MiB"), Ok(2_097_152));
        assert_eq!(parse_size("2m"), Ok(2_097_152));
        assert_eq!(parse_size("16383PiB"), Ok(18_445_618_173_802_708_992));
    }

    #[test]
    fn what_is_no_size_is_said_to_be_none() {
        for text in [
            "",
            "KiB",
            "-1",
            "1.5MiB",
            "0x10",
            "1 kB",
            "3 apples",
            "16384PiB",
            "18446744073709551616",
        ] {
            assert!(parse_size(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_default_to_seconds() {
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("soon").is_err());
        assert!(parse_duration("1d").is_err());
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn sizes_and_times_take_the_unit_that_suits_them() {
        assert_eq!(size(28), "28 B");
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size(1000 << 10), "1,000 KiB");
        assert_eq!(size(1_874_000), "1.79 MiB");
        assert_eq!(size(98_000), "95.7 KiB");
        assert_eq!(time(740), "740 ns");
        assert_eq!(time(1_500), "1.50 µs");
        assert_eq!(time(12_000_000), "12 ms");
        assert_eq!(time(12_340_000), "12.3 ms");
        assert_eq!(time(2_250_000_000), "2.25 s");
    }

    #[test]
    fn hex_goes_both_ways_and_refuses_half_bytes() {
        assert_eq!(parse_hex("00ffA5"), Ok(vec![0, 255, 0xa5]));
        assert_eq!(hex(&[0, 255, 0xa5]), "00ffa5");
        assert!(parse_hex("abc").is_err());
        assert!(parse_hex("zz").is_err());
    }
}
