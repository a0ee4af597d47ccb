// SPDX-License-Identifier: GPL-2.0

//! The admin command set as types (NVM Express Base Specification 2.0, section 5).
//!
//! A command knows its opcode, its dwords and how its reply is read, so that no reply can be read as
//! another command's. Never waits and never submits: [`super::controller`] does.

use super::spec::Sqe;
use kernel::prelude::*;

/// An admin command and the meaning of its reply.
pub(super) trait AdminCommand {
    /// The opcode.
    const OPCODE: u8;
    /// Bytes that the controller writes to the data buffer, at most 4096.
    const REPLY_BYTES: usize = 0;
    /// What a successful completion says. Large replies are read in place by `reply`.
    type Reply;

    /// Fills everything but opcode, identifier and data pointer.
    fn encode(&self, sqe: &mut Sqe);

    /// Reads dword 0 and the data, which are hostile.
    ///
    /// # Errors
    ///
    /// - `EPROTO` if the reply contradicts the specification.
    fn reply(&self, dw0: u32, data: &[u8]) -> Result<Self::Reply>;
}

/// Identify, with the reply left as bytes for `parse`.
pub(super) struct Identify<F> {
    /// Controller or Namespace Structure.
    pub(super) cns: Cns,
    pub(super) nsid: u32,
    pub(super) parse: F,
}

/// Which structure Identify returns.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Cns {
    /// Identify Namespace for the NVM command set.
    Namespace = 0x00,
    /// Identify Controller.
    Controller = 0x01,
    /// Identifiers above NSID of up to 1024 active namespaces.
    ActiveNamespaces = 0x02,
}

impl<R, F: Fn(&[u8]) -> Result<R>> AdminCommand for Identify<F> {
    const OPCODE: u8 = 0x06;
    const REPLY_BYTES: usize = 4096;
    type Reply = R;

    fn encode(&self, sqe: &mut Sqe) {
        sqe.nsid = self.nsid.into();
        sqe.cdw10 = (self.cns as u32).into();
    }

    fn reply(&self, _dw0: u32, data: &[u8]) -> Result<R> {
        (self.parse)(data)
    }
}

/// Get Log Page of the whole controller, the first `BYTES` of it (a multiple of 4).
pub(super) struct GetLogPage<const BYTES: usize, F> {
    /// Log page identifier.
    pub(super) lid: u8,
    pub(super) parse: F,
}

impl<const BYTES: usize, R, F: Fn(&[u8]) -> Result<R>> AdminCommand for GetLogPage<BYTES, F> {
    const OPCODE: u8 = 0x02;
    const REPLY_BYTES: usize = BYTES;
    type Reply = R;

    fn encode(&self, sqe: &mut Sqe) {
        // Retain Asynchronous Event stays clear: reading the page unmasks its events.
        let dwords = (BYTES / 4).saturating_sub(1) as u32;
        sqe.nsid = u32::MAX.into();
        sqe.cdw10 = (u32::from(self.lid) | (dwords & 0xffff) << 16).into();
        sqe.cdw11 = (dwords >> 16).into();
    }

    fn reply(&self, _dw0: u32, data: &[u8]) -> Result<R> {
        (self.parse)(data)
    }
}

/// Set Features, Number of Queues: asks for `pairs` I/O queue pairs and says how many there are.
pub(super) struct SetQueueCount {
    pub(super) pairs: u16,
}

impl AdminCommand for SetQueueCount {
    const OPCODE: u8 = 0x09;
    type Reply = u16;

    fn encode(&self, sqe: &mut Sqe) {
        let zero_based = u32::from(self.pairs.saturating_sub(1));
        sqe.cdw10 = 0x07.into();
        sqe.cdw11 = (zero_based << 16 | zero_based).into();
    }

    fn reply(&self, dw0: u32, _data: &[u8]) -> Result<u16> {
        let submission = dw0 & 0xffff;
        let completion = dw0 >> 16;
        let pairs = submission.min(completion).saturating_add(1);
        Ok(u16::try_from(pairs).unwrap_or(u16::MAX).min(self.pairs))
    }
}

/// Set Features, Asynchronous Event Configuration.
pub(super) struct SetAsyncEvents {
    /// Bits 7:0 critical warnings, 8 namespace attributes, 9 firmware activation.
    pub(super) mask: u32,
}

impl AdminCommand for SetAsyncEvents {
    const OPCODE: u8 = 0x09;
    type Reply = ();

    fn encode(&self, sqe: &mut Sqe) {
        sqe.cdw10 = 0x0b.into();
        sqe.cdw11 = self.mask.into();
    }

    fn reply(&self, _dw0: u32, _data: &[u8]) -> Result {
        Ok(())
    }
}

/// Create I/O Completion Queue, contiguous and with interrupts.
pub(super) struct CreateCompletionQueue {
    pub(super) qid: u16,
    pub(super) depth: u16,
    pub(super) vector: u16,
    pub(super) address: u64,
}

impl AdminCommand for CreateCompletionQueue {
    const OPCODE: u8 = 0x05;
    type Reply = ();

    fn encode(&self, sqe: &mut Sqe) {
        sqe.prp1 = self.address.into();
        sqe.cdw10 = (u32::from(self.depth.wrapping_sub(1)) << 16 | u32::from(self.qid)).into();
        sqe.cdw11 = (u32::from(self.vector) << 16 | 0b11).into();
    }

    fn reply(&self, _dw0: u32, _data: &[u8]) -> Result {
        Ok(())
    }
}

/// Create I/O Submission Queue, contiguous, paired with the completion queue of the same number.
pub(super) struct CreateSubmissionQueue {
    pub(super) qid: u16,
    pub(super) depth: u16,
    pub(super) address: u64,
}

impl AdminCommand for CreateSubmissionQueue {
    const OPCODE: u8 = 0x01;
    type Reply = ();

    fn encode(&self, sqe: &mut Sqe) {
        sqe.prp1 = self.address.into();
        sqe.cdw10 = (u32::from(self.depth.wrapping_sub(1)) << 16 | u32::from(self.qid)).into();
        sqe.cdw11 = (u32::from(self.qid) << 16 | 0b1).into();
    }

    fn reply(&self, _dw0: u32, _data: &[u8]) -> Result {
        Ok(())
    }
}

/// Delete I/O Submission Queue.
pub(super) struct DeleteSubmissionQueue(pub(super) u16);

impl AdminCommand for DeleteSubmissionQueue {
    const OPCODE: u8 = 0x00;
    type Reply = ();

    fn encode(&self, sqe: &mut Sqe) {
        sqe.cdw10 = u32::from(self.0).into();
    }

    fn reply(&self, _dw0: u32, _data: &[u8]) -> Result {
        Ok(())
    }
}

/// Delete I/O Completion Queue.
pub(super) struct DeleteCompletionQueue(pub(super) u16);

impl AdminCommand for DeleteCompletionQueue {
    const OPCODE: u8 = 0x04;
    type Reply = ();

    fn encode(&self, sqe: &mut Sqe) {
        sqe.cdw10 = u32::from(self.0).into();
    }

    fn reply(&self, _dw0: u32, _data: &[u8]) -> Result {
        Ok(())
    }
}

/// Abort; says whether the command was aborted.
pub(super) struct Abort {
    pub(super) qid: u16,
    pub(super) cid: u16,
}

impl AdminCommand for Abort {
    const OPCODE: u8 = 0x08;
    type Reply = bool;

    fn encode(&self, sqe: &mut Sqe) {
        sqe.cdw10 = (u32::from(self.cid) << 16 | u32::from(self.qid)).into();
    }

    fn reply(&self, dw0: u32, _data: &[u8]) -> Result<bool> {
        Ok(dw0 & 1 == 0)
    }
}

/// Opcode of Asynchronous Event Request, which is answered by an event instead of a reply.
pub(super) const ASYNC_EVENT_REQUEST: u8 = 0x0c;
