// SPDX-License-Identifier: GPL-2.0

//! Host memory that a device reads and writes.
//!
//! A [`DmaBuffer`] is a coherent allocation seen as 64-bit words. All access is by volatile reads
//! and writes of single words and by copies; no reference into it ever exists.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::Coherent,
    io::{
        io_read,
        io_write, //
    },
    prelude::*, //
};

/// A zeroed coherent buffer. The device must have stopped using it before it is dropped.
pub(crate) struct DmaBuffer {
    words: Coherent<[u64]>,
}

impl DmaBuffer {
    /// Allocates `bytes` (rounded up to 8) of zeroed memory.
    ///
    /// # Errors
    ///
    /// - `ENOMEM`; `EINVAL` for zero bytes.
    pub(crate) fn new(dev: &Device<Bound>, bytes: usize) -> Result<Self> {
        Ok(Self {
            words: Coherent::zeroed_slice(dev, bytes.div_ceil(8), GFP_KERNEL)?,
        })
    }

    /// The address by which the device knows the first byte.
    pub(crate) fn bus_address(&self) -> u64 {
        self.words.dma_address()
    }

    /// Bytes in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.words.size()
    }

    /// Reads word `index` in one access.
    ///
    /// # Errors
    ///
    /// - `ERANGE` outside the buffer.
    pub(crate) fn read(&self, index: usize) -> Result<u64> {
        (|| Ok(io_read!(self.words, [try: index])))().map_err(|_: Error| ERANGE)
    }

    /// Writes word `index` in one access.
    ///
    /// # Errors
    ///
    /// - `ERANGE` outside the buffer.
    pub(crate) fn write(&self, index: usize, value: u64) -> Result {
        (|| {
            io_write!(self.words, [try: index], value);
            Ok(())
        })()
        .map_err(|_: Error| ERANGE)
    }

    /// Sets the first `bytes` (rounded up to 8) to zero.
    pub(crate) fn clear(&self, bytes: usize) {
        for index in 0..bytes.div_ceil(8).min(self.words.len()) {
            let _ = self.write(index, 0);
        }
    }

    /// Copies the start of the buffer to `out`.
    ///
    /// # Errors
    ///
    /// - `ERANGE` if the buffer is shorter than `out`; nothing was copied.
    pub(crate) fn copy_to(&self, out: &mut [u8]) -> Result {
        if out.len() > self.len() {
            return Err(ERANGE);
        }
        for (index, chunk) in out.chunks_mut(8).enumerate() {
            let word = self.read(index)?.to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(word) {
                *to = from;
            }
        }
        Ok(())
    }
}
