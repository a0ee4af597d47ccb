// SPDX-License-Identifier: GPL-2.0

//! Memory of one machine that threads share, as rings see it.
//!
//! Owns how the protocol's rules of order become orders of atomics: a release store, an acquire load,
//! all else relaxed, word by word. So there is no data race and nothing unsafe. A word has one writer,
//! as the protocol wants; a part of a word is written by replacing it. Knows nothing of rings.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use idc::member::{Location, MemberId, MemoryId};
use idc::memory::{Fabric, Fault, Memory};
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;

/// A word that threads share: the machine's, or a checker's.
pub trait Word {
    /// Zero.
    fn zero() -> Self;
    /// Reads it.
    fn load(&self, order: Ordering) -> u64;
    /// Writes it.
    fn store(&self, value: u64, order: Ordering);
    /// Orders all before against all after.
    fn fence();
}

impl Word for AtomicU64 {
    fn zero() -> Self {
        AtomicU64::new(0)
    }

    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

struct Block<W> {
    words: Box<[W]>,
    /// The first word that begins a line of 64 bytes.
    first: usize,
}

impl<W: Word> Block<W> {
    fn new(bytes: usize) -> Self {
        let words: Box<[W]> = (0..bytes / 8 + 8).map(|_| W::zero()).collect();
        let address = words.as_ptr() as usize;
        let first = (address.next_multiple_of(64) - address) / size_of::<W>().max(1);
        Block {
            first: first.min(7),
            words,
        }
    }
}

/// What a thread holds of memories that it shares with others.
pub struct Native<W = AtomicU64> {
    blocks: Arc<[Block<W>]>,
}

impl<W> Clone for Native<W> {
    fn clone(&self) -> Self {
        Native {
            blocks: Arc::clone(&self.blocks),
        }
    }
}

impl<W: Word> Native<W> {
    /// `count` memories of `bytes` bytes each, all zero.
    #[must_use]
    pub fn new(count: usize, bytes: usize) -> Self {
        Native {
            blocks: (0..count).map(|_| Block::new(bytes)).collect(),
        }
    }

    /// The words from the one in which `at` lies.
    #[inline]
    fn words(&self, at: Location) -> Result<&[W], Fault> {
        let block = self.blocks.get(at.memory.index()).ok_or(Fault::NoMemory)?;
        let word = usize::try_from(at.offset / 8).map_err(|_| Fault::OutOfRange)?;
        let from = word.checked_add(block.first).ok_or(Fault::OutOfRange)?;
        block.words.get(from..).ok_or(Fault::OutOfRange)
    }

    /// The words that `bytes` bytes from `at` touch, and how far into the first these begin.
    #[inline]
    fn range(&self, at: Location, bytes: usize) -> Result<(&[W], usize), Fault> {
        let into = (at.offset % 8) as usize;
        let count = (into + bytes).div_ceil(8);
        let words = self.words(at)?.get(..count).ok_or(Fault::OutOfRange)?;
        Ok((words, into))
    }

    #[inline]
    fn word(&self, at: Location) -> Result<&W, Fault> {
        if at.offset % 8 != 0 {
            return Err(Fault::OutOfRange);
        }
        self.words(at)?.first().ok_or(Fault::OutOfRange)
    }
}

impl<W: Word> Memory for Native<W> {
    #[inline]
    fn read(&mut self, at: Location, buf: &mut [u8]) -> Result<(), Fault> {
        let (words, into) = self.range(at, buf.len())?;
        if into == 0 {
            let mut whole = buf.chunks_exact_mut(8);
            for (bytes, word) in whole.by_ref().zip(words) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            let rest = whole.into_remainder();
            if let (false, Some(word)) = (rest.is_empty(), words.last()) {
                let bytes = word.load(Ordering::Relaxed).to_le_bytes();
                rest.copy_from_slice(&bytes[..rest.len()]);
            }
            return Ok(());
        }
        let mut done = 0;
        for (index, word) in words.iter().enumerate() {
            let bytes = word.load(Ordering::Relaxed).to_le_bytes();
            let from = if index == 0 { into } else { 0 };
            let part = (8 - from).min(buf.len() - done);
            buf[done..done + part].copy_from_slice(&bytes[from..from + part]);
            done += part;
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, at: Location, data: &[u8]) -> Result<(), Fault> {
        let (words, into) = self.range(at, data.len())?;
        let mut data = data;
        let mut from = into;
        for word in words {
            if let (0, Some((bytes, rest))) = (from, data.split_first_chunk::<8>()) {
                word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
                data = rest;
                continue;
            }
            let part = (8 - from).min(data.len());
            let (now, rest) = data.split_at(part);
            let mut bytes = word.load(Ordering::Relaxed).to_le_bytes();
            bytes[from..from + part].copy_from_slice(now);
            word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            data = rest;
            from = 0;
        }
        Ok(())
    }

    #[inline]
    fn load_u64(&mut self, at: Location) -> Result<u64, Fault> {
        Ok(self.word(at)?.load(Ordering::Acquire))
    }

    #[inline]
    fn store_release_u64(&mut self, at: Location, value: u64) -> Result<(), Fault> {
        self.word(at)?.store(value, Ordering::Release);
        Ok(())
    }

    fn flush(&mut self, _: MemoryId) -> Result<(), Fault> {
        W::fence();
        Ok(())
    }
}

impl<W: Word> Fabric for Native<W> {
    /// Everybody polls.
    fn notify(&mut self, _: MemberId) {}
}
