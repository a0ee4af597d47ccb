// SPDX-License-Identifier: GPL-2.0

//! `host-peer DEVICE LENGTH DELIMITER PREDICATE KEY-FILE IV-HEX >RESULT`: filter and AES-256-CTR as a
//! program on the host does them, without drives that help.
//!
//! The peer in the benchmark `pipeline`. It reads the block device past the page cache, as a drive
//! reads its storage for itself, in pieces of 1 MiB, runs the same filter as csd (`idc`) and the
//! RustCrypto AES, which uses the processor's AES instructions. On standard error it says how many
//! bytes the processor touched: each byte that was read, written by the filter, or enciphered in place.

use aes::cipher::{KeyIvInit, StreamCipher};
use idc::function::{
    scratch_len, FilterParameters, Function, FunctionState, NoCrypto, Parameters, Status,
};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use zerocopy::FromZeros;

/// `O_DIRECT` of x86-64 (fcntl(2)); the Linux ABI does not change it.
const O_DIRECT: i32 = 0o40000;

/// Bytes read at a time.
const PIECE: usize = 1 << 20;

/// What `O_DIRECT` wants buffers and lengths to be multiples of.
const ALIGN: usize = 4096;

type Ctr = ctr::Ctr128BE<aes::Aes256>;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, device, length, delimiter, predicate, key, iv] = &args[..] else {
        return Err("usage: host-peer DEVICE LENGTH DELIMITER PREDICATE KEY-FILE IV-HEX".into());
    };
    let mut left: usize = length.parse()?;
    let mut input = OpenOptions::new()
        .read(true)
        .custom_flags(O_DIRECT)
        .open(device)?;
    let mut cipher = Ctr::new_from_slices(&std::fs::read(key)?, &from_hex(iv)?)
        .map_err(|_| "a key has 32 bytes, an IV 16")?;
    let mut filter = Filter::new(
        delimiter.as_bytes().first().copied().unwrap_or(b'\t'),
        predicate,
    )?;
    let mut result = io::stdout().lock();

    let mut memory = vec![0; PIECE + ALIGN];
    let start = memory.as_ptr().align_offset(ALIGN);
    let buffer = memory
        .get_mut(start..start + PIECE)
        .ok_or("no aligned buffer")?;
    let mut touched = 0;
    while left > 0 || filter.open {
        let got = fill(&mut input, buffer, left)?;
        left -= got;
        let output = filter.step(buffer.get(..got).unwrap_or_default(), left == 0)?;
        cipher.apply_keystream(output);
        // Read by the filter, written by it, read and written by the cipher.
        touched += got + 3 * output.len();
        result.write_all(output)?;
    }
    result.flush()?;
    eprintln!("{touched}");
    Ok(())
}

/// Reads as much of the next `left` bytes as `buffer` holds.
fn fill(input: &mut File, buffer: &mut [u8], left: usize) -> io::Result<usize> {
    let want = left.min(buffer.len());
    let mut got = 0;
    while got < want {
        // Whole blocks; what is too much at the end is not used.
        let end = want.next_multiple_of(ALIGN).min(buffer.len());
        match input.read(&mut buffer[got..end])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => got += n,
        }
    }
    Ok(want)
}

/// The filter of `idc` over whole pieces.
struct Filter {
    state: Box<FunctionState>,
    scratch: Vec<u8>,
    output: Vec<u8>,
    open: bool,
}

impl Filter {
    fn new(delimiter: u8, predicate: &str) -> Result<Self, Box<dyn Error>> {
        let parameters =
            Parameters::Filter(FilterParameters::lines(delimiter, predicate.as_bytes()));
        let mut bytes = vec![0; parameters.encoded_len()];
        parameters.encode(&mut bytes)?;
        let mut state = FunctionState::new_box_zeroed().map_err(|_| "no memory")?;
        state.start(&bytes)?;
        Ok(Self {
            state,
            scratch: vec![0; scratch_len(&bytes)?],
            // A record that the last piece began, and a newline.
            output: vec![0; PIECE + (64 << 10) + 1],
            open: true,
        })
    }

    /// The records of `input` that are kept.
    fn step(&mut self, mut input: &[u8], last: bool) -> Result<&mut [u8], Box<dyn Error>> {
        let mut made = 0;
        loop {
            let room = self.output.get_mut(made..).unwrap_or_default();
            let step = self
                .state
                .step(&mut self.scratch, input, last, room, &mut NoCrypto)?;
            made += step.produced;
            input = input.get(step.consumed..).unwrap_or_default();
            match step.status {
                Status::Done => {
                    self.open = false;
                    break;
                }
                Status::NeedInput if input.is_empty() => break,
                Status::NeedInput => {}
                Status::NeedOutput => return Err("a filter makes no more than it gets".into()),
            }
        }
        Ok(self.output.get_mut(..made).unwrap_or_default())
    }
}

fn from_hex(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?))
        .collect()
}
