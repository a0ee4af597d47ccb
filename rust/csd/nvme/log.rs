// SPDX-License-Identifier: GPL-2.0

//! Log pages (NVM Express Base Specification 2.0, section 5.16).
//!
//! Owns what is read of the SMART page. Other pages are only read to unmask their events.

use kernel::prelude::*;

/// Error Information.
pub(super) const ERROR: u8 = 0x01;
/// SMART / Health Information.
pub(super) const SMART: u8 = 0x02;
/// Firmware Slot Information.
pub(super) const FIRMWARE_SLOTS: u8 = 0x03;
/// Changed Attached Namespace List.
pub(super) const CHANGED_NAMESPACES: u8 = 0x04;

/// Bytes of the SMART page.
pub(super) const SMART_BYTES: usize = 512;

/// What of the SMART page is of use here; the rest is for management tools, which read it themselves.
#[derive(Clone, Copy)]
pub(crate) struct SmartHealth {
    /// Bit 0 spare low, 1 temperature, 2 reliability, 3 read only, 4 backup failed, 5 PMR unreliable.
    pub(crate) critical_warning: u8,
}

impl SmartHealth {
    /// Reads the page.
    ///
    /// # Errors
    ///
    /// - `EPROTO` if it is short.
    pub(super) fn parse(data: &[u8]) -> Result<Self> {
        match data.first() {
            Some(&critical_warning) if data.len() == SMART_BYTES => Ok(Self { critical_warning }),
            _ => Err(EPROTO),
        }
    }
}
