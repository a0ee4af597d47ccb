// SPDX-License-Identifier: GPL-2.0

//! Inboxes: where SEND messages wait for somebody to receive them.
//!
//! Owns one bounded queue for each member and its waiters. Never talks to a ring.

use crate::{
    idc::member::MemberId,
    sys::time, //
};
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        CondVar,
        Mutex, //
    }, //
};

/// Messages that wait in one inbox.
const CAPACITY: usize = 64;

/// A message that was received.
pub(crate) struct Message {
    /// Who sent it.
    pub(crate) from: MemberId,
    /// What it says.
    pub(crate) payload: KVec<u8>,
}

struct Queue {
    messages: KVec<Message>,
    /// Messages refused since somebody was told.
    dropped: u64,
    /// Why nothing comes any more.
    closed: Option<Error>,
}

/// One member's inbox.
#[pin_data]
pub(crate) struct Inbox {
    #[pin]
    queue: Mutex<Queue>,
    #[pin]
    arrived: CondVar,
}

impl Inbox {
    /// An empty inbox.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            queue <- new_mutex!(Queue {
                messages: KVec::with_capacity(CAPACITY, GFP_KERNEL)?,
                dropped: 0,
                closed: None,
            }, "csd_inbox"),
            arrived <- new_condvar!("csd_inbox"),
        })
    }

    /// Puts a message in; `false` if there is no room for it.
    pub(crate) fn push(&self, from: MemberId, payload: &[u8]) -> bool {
        let mut copy = KVec::new();
        if copy.extend_from_slice(payload, GFP_KERNEL).is_err() {
            return false;
        }
        let message = Message {
            from,
            payload: copy,
        };
        let mut queue = self.queue.lock();
        if queue.closed.is_some() || queue.messages.push_within_capacity(message).is_err() {
            queue.dropped = queue.dropped.wrapping_add(1);
            return false;
        }
        drop(queue);
        self.arrived.notify_all();
        true
    }

    /// Ends all waiting with `error`; messages that are there can still be received.
    pub(crate) fn close(&self, error: Error) {
        let mut queue = self.queue.lock();
        if queue.closed.is_none() {
            queue.closed = Some(error);
        }
        drop(queue);
        self.arrived.notify_all();
    }

    /// Takes the oldest message if it has at most `room` bytes, and tells how many were dropped
    /// before it. Waits up to `timeout_ms` (0: not at all, `u32::MAX`: for ever).
    ///
    /// # Errors
    ///
    /// - EAGAIN with a timeout of 0 and ETIMEDOUT otherwise if there is none,
    /// - EMSGSIZE if it is longer than `room` (it stays), EINTR,
    /// - what the inbox was closed with.
    pub(crate) fn take(&self, room: usize, timeout_ms: u32) -> Result<(Message, u64)> {
        let mut timer = time::Timer::start(timeout_ms);
        let mut queue = self.queue.lock();
        loop {
            if let Some(first) = queue.messages.first() {
                if first.payload.len() > room {
                    return Err(EMSGSIZE);
                }
                let message = queue.messages.remove(0).map_err(|_| EIO)?;
                let dropped = core::mem::take(&mut queue.dropped);
                return Ok((message, dropped));
            }
            if let Some(error) = queue.closed {
                return Err(error);
            }
            if timeout_ms == 0 {
                return Err(EAGAIN);
            }
            timer.wait(&self.arrived, &mut queue)?;
        }
    }

    /// Puts a message back that could not be delivered, as the oldest.
    pub(crate) fn put_back(&self, message: Message, dropped: u64) {
        let mut queue = self.queue.lock();
        queue.dropped = queue.dropped.wrapping_add(dropped);
        // If the inbox filled up meanwhile this message is lost, like one that came too late.
        if queue.messages.insert_within_capacity(0, message).is_err() {
            queue.dropped = queue.dropped.wrapping_add(1);
        }
    }
}
