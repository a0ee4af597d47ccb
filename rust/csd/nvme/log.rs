// SPDX-License-Identifier: GPL-2.0

//! Log pages (NVM Express Base Specification 2.0, section 5.16).
//!
//! Owns the layout of the SMART page. Other pages are only read to unmask their events.

use kernel::prelude::*;
use zerocopy::little_endian::{
    U128,
    U16,
    U32, //
};
use zerocopy_derive::{
    Immutable,
    KnownLayout, //
};

/// Error Information.
pub(super) const ERROR: u8 = 0x01;
/// SMART / Health Information.
pub(super) const SMART: u8 = 0x02;
/// Firmware Slot Information.
pub(super) const FIRMWARE_SLOTS: u8 = 0x03;
/// Changed Attached Namespace List.
pub(super) const CHANGED_NAMESPACES: u8 = 0x04;

/// SMART / Health Information.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawSmart {
    critical_warning: u8,
    temperature: [u8; 2],
    available_spare: u8,
    available_spare_threshold: u8,
    percentage_used: u8,
    unread_1: [u8; 26],
    data_units_read: U128,
    data_units_written: U128,
    host_reads: U128,
    host_writes: U128,
    busy_minutes: U128,
    power_cycles: U128,
    power_on_hours: U128,
    unsafe_shutdowns: U128,
    media_errors: U128,
    error_log_entries: U128,
    warning_minutes: U32,
    critical_minutes: U32,
    sensors: [U16; 8],
    unread_2: [u8; 296],
}
const _: () = assert!(size_of::<RawSmart>() == SMART_BYTES);

/// Bytes of the SMART page.
pub(super) const SMART_BYTES: usize = 512;

/// The health of a drive. Counts saturate at 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct SmartHealth {
    /// Bit 0 spare low, 1 temperature, 2 reliability, 3 read only, 4 backup failed, 5 PMR unreliable.
    pub(crate) critical_warning: u8,
    /// Kelvin.
    pub(crate) temperature: u16,
    /// Percent.
    pub(crate) available_spare: u8,
    /// Percent.
    pub(crate) available_spare_threshold: u8,
    /// Percent, may exceed 100.
    pub(crate) percentage_used: u8,
    /// Thousands of 512-byte units.
    pub(crate) data_units_read: u64,
    /// Thousands of 512-byte units.
    pub(crate) data_units_written: u64,
    /// Commands.
    pub(crate) host_reads: u64,
    /// Commands.
    pub(crate) host_writes: u64,
    pub(crate) power_cycles: u64,
    pub(crate) power_on_hours: u64,
    pub(crate) unsafe_shutdowns: u64,
    pub(crate) media_errors: u64,
    pub(crate) error_log_entries: u64,
}

impl SmartHealth {
    /// Reads the page.
    ///
    /// # Errors
    ///
    /// - `EPROTO` if it is short.
    pub(super) fn parse(data: &[u8]) -> Result<Self> {
        let raw = RawSmart::ref_from_bytes(data).map_err(|_| EPROTO)?;
        let count = |n: U128| u64::try_from(n.get()).unwrap_or(u64::MAX);
        Ok(Self {
            critical_warning: raw.critical_warning,
            temperature: u16::from_le_bytes(raw.temperature),
            available_spare: raw.available_spare,
            available_spare_threshold: raw.available_spare_threshold,
            percentage_used: raw.percentage_used,
            data_units_read: count(raw.data_units_read),
            data_units_written: count(raw.data_units_written),
            host_reads: count(raw.host_reads),
            host_writes: count(raw.host_writes),
            power_cycles: count(raw.power_cycles),
            power_on_hours: count(raw.power_on_hours),
            unsafe_shutdowns: count(raw.unsafe_shutdowns),
            media_errors: count(raw.media_errors),
            error_log_entries: count(raw.error_log_entries),
        })
    }
}
