// SPDX-License-Identifier: GPL-2.0

//! Messages of users: `CSD_IOC_MSG_CALL` and `CSD_IOC_MSG_RECV`.
//!
//! Owns the checks of these calls and the way that a message takes: from the host straight to the
//! drive, from a drive by way of a RELAY request to it. Never touches a ring itself.

use super::Mesh;
use crate::{
    idc::{
        entry::{
            Opcode,
            Request,
            OVERHEAD_BYTES, //
        },
        member::MemberId, //
    },
    sys::uaccess,
    uapi::{
        self,
        csd_msg_call,
        csd_msg_recv, //
    }, //
};
use kernel::prelude::*;

/// How long a call waits where the caller leaves it to us, in milliseconds.
const DEFAULT_TIMEOUT_MS: u32 = 5000;

impl Mesh {
    /// Bytes that a message may carry.
    fn payload_room(&self) -> usize {
        (self.table.shape().entry_bytes as usize).saturating_sub(OVERHEAD_BYTES)
    }

    /// Carries out `CSD_IOC_MSG_CALL`.
    ///
    /// # Errors
    ///
    /// - As `uapi/csd.h` says.
    pub(crate) fn call(&self, call: &mut csd_msg_call) -> Result {
        let no_response = call.flags & uapi::CSD_MSG_NO_RESPONSE != 0;
        if call.flags & !uapi::CSD_MSG_NO_RESPONSE != 0 {
            return Err(EOPNOTSUPP);
        }
        let opcode = match call.opcode {
            uapi::CSD_MSG_PING => Opcode::PING,
            uapi::CSD_MSG_SEND => Opcode::SEND,
            _ => return Err(EOPNOTSUPP),
        };
        let from = self.find(call.from)?;
        let to = self.find(call.to)?;
        // A relayed message is answered to the drive that sends it; it cannot go unanswered.
        if from == to || (no_response && !from.is_host()) {
            return Err(EINVAL);
        }
        let len = call.payload_len as usize;
        if len > self.payload_room() {
            return Err(EMSGSIZE);
        }
        let timeout_ms = match call.timeout_ms {
            0 => DEFAULT_TIMEOUT_MS,
            ms => ms,
        };
        let mut payload = KVec::from_elem(0u8, len, GFP_KERNEL)?;
        uaccess::read_bytes(call.payload, &mut payload)?;

        let (request, over) = if from.is_host() {
            let request = match opcode {
                Opcode::PING => Request::ping(&payload),
                _ => Request::send(&payload),
            };
            (request, to)
        } else {
            (Request::relay(opcode, to, &payload), from)
        };
        if no_response {
            self.host.notice(&self.bus, over, &request, timeout_ms)?;
            call.response_len = 0;
            call.status = 0;
            call.rtt_ns = 0;
            return Ok(());
        }
        let room = match call.response {
            0 => 0,
            _ => (call.response_len as usize).min(self.payload_room()),
        };
        let answer = if from.is_host() {
            self.host.call(&self.bus, over, &request, room, timeout_ms)
        } else {
            self.host.relay(&self.bus, over, &request, room, timeout_ms)
        }?;
        call.status = u32::from(answer.status.to_wire());
        call.rtt_ns = answer.rtt_ns;
        let payload = answer.payload.get(..room).unwrap_or(&answer.payload);
        uaccess::write_bytes(call.response, payload)?;
        call.response_len = u32::try_from(answer.len)?;
        if !answer.status.is_ok() {
            return Err(EIO);
        }
        Ok(())
    }

    /// Carries out `CSD_IOC_MSG_RECV`.
    ///
    /// # Errors
    ///
    /// - As `uapi/csd.h` says.
    pub(crate) fn receive(&self, recv: &mut csd_msg_recv) -> Result {
        let at = self.find(recv.at)?;
        let inbox = match self.member(at) {
            Some(member) => &*member.proxy.inbox,
            None => &self.host.inbox,
        };
        let room = recv.payload_len as usize;
        let (message, dropped) = inbox.take(room, recv.timeout_ms)?;
        if let Err(error) = uaccess::write_bytes(recv.payload, &message.payload) {
            inbox.put_back(message, dropped);
            return Err(error);
        }
        recv.from = self.drive_of(message.from);
        recv.payload_len = u32::try_from(message.payload.len())?;
        recv.dropped = dropped;
        Ok(())
    }

    /// Whether `id` is a drive that is still here.
    pub(crate) fn is_here(&self, id: MemberId) -> bool {
        self.member(id).is_some_and(|member| !member.is_lost())
    }
}
