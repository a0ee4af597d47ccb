// SPDX-License-Identifier: GPL-2.0 OR MIT

//! CRC-32C (Castagnoli), the cyclic redundancy check of iSCSI (RFC 3720, section 12.1) and of NVMe.
//!
//! Owns the tables and the arithmetic, and nothing that has state: the running value is the
//! caller's. It never uses CPU instructions for CRC, so that it gives the same on every drive.

/// The generator polynomial 11EDC6F41h with its bits reversed: the CRC takes the low bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[k][b]`: the remainder of byte `b` followed by `k` zero bytes.
#[allow(clippy::indexing_slicing, reason = "evaluated by the compiler")]
static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0u32; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let shorter = tables[k - 1][byte];
            tables[k][byte] = (shorter >> 8) ^ tables[0][(shorter & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
};

/// A byte always finds its entry: the tables have 256, so the default is never taken (and the
/// compiler sees that).
#[inline(always)]
fn entry(table: &[u32; 256], byte: u8) -> u32 {
    table.get(usize::from(byte)).copied().unwrap_or(0)
}

/// The CRC-32C of some bytes whose CRC-32C is `crc` followed by `data`. Start with 0.
///
/// `update(update(0, a), b) == update(0, ab)`; the CRC of no bytes is 0.
pub fn update(crc: u32, data: &[u8]) -> u32 {
    let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
    let mut crc = !crc;
    let mut tail = data;
    // Eight table look-ups that do not wait for each other, instead of a chain of eight.
    while let Some((&[a, b, c, d, e, f, g, h], rest)) = tail.split_first_chunk::<8>() {
        let [p, q, r, s] = crc.to_le_bytes();
        crc = entry(t7, a ^ p)
            ^ entry(t6, b ^ q)
            ^ entry(t5, c ^ r)
            ^ entry(t4, d ^ s)
            ^ entry(t3, e)
            ^ entry(t2, f)
            ^ entry(t1, g)
            ^ entry(t0, h);
        tail = rest;
    }
    for &byte in tail {
        let [low, ..] = crc.to_le_bytes();
        crc = (crc >> 8) ^ entry(t0, byte ^ low);
    }
    !crc
}
