// SPDX-License-Identifier: GPL-2.0

//! Controller registers (NVM Express Base Specification 2.0, section 3.1.4) and access to them.
//!
//! Owns the register mapping of one controller and its doorbells. Registers are hostile input: what
//! is read here is checked where it is used, and all ones means that the device is gone.
//!
//! Glossary: RDY ready, CFS controller fatal status, SHN/SHST shutdown notification/status, DSTRD
//! doorbell stride, MQES maximum queue entries, CBA controller base address (of CMB or PMR).

use kernel::{
    device::Bound,
    io::{
        register,
        Io, //
    },
    pci::{
        self,
        DevresBar, //
    },
    prelude::*, //
};

register! {
    /// Controller Capabilities.
    pub(crate) CAP(u64) @ 0x00 {
        /// CRTO tells how long the controller takes until media are ready.
        59:59 crwms => bool;
        /// CMB supported through CMBMSC (the scheme of 1.4 and later).
        57:57 cmbs => bool;
        /// PMR supported.
        56:56 pmrs => bool;
        /// Largest memory page size: 2^(12 + n).
        55:52 mpsmax;
        /// Smallest memory page size: 2^(12 + n).
        51:48 mpsmin;
        /// Command sets: bit 0 NVM, bit 6 one or more I/O command sets, bit 7 admin only.
        44:37 css;
        /// Doorbell stride: 4 << n bytes.
        35:32 dstrd;
        /// Longest time for a change of RDY, in 500 ms.
        31:24 to;
        /// Queues must be physically contiguous.
        16:16 cqr => bool;
        /// Largest I/O queue, zero based.
        15:0 mqes;
    }

    /// Version.
    pub(crate) VS(u32) @ 0x08 {
        31:16 major;
        15:8 minor;
        7:0 tertiary;
    }

    /// Controller Configuration.
    pub(crate) CC(u32) @ 0x14 {
        /// I/O completion queue entry size, a power of two.
        23:20 iocqes;
        /// I/O submission queue entry size, a power of two.
        19:16 iosqes;
        /// Shutdown notification: 1 normal, 2 abrupt.
        15:14 shn;
        /// Memory page size: 2^(12 + n).
        10:7 mps;
        /// Command set: 0 NVM, 6 all supported.
        6:4 css;
        0:0 en => bool;
    }

    /// Controller Status.
    pub(crate) CSTS(u32) @ 0x1c {
        /// Shutdown status: 2 complete.
        3:2 shst;
        1:1 cfs => bool;
        0:0 rdy => bool;
    }

    /// Admin Queue Attributes; sizes are zero based.
    pub(crate) AQA(u32) @ 0x24 {
        27:16 acqs;
        11:0 asqs;
    }

    /// Admin Submission Queue Base Address.
    pub(crate) ASQ(u64) @ 0x28 {
        63:0 address;
    }

    /// Admin Completion Queue Base Address.
    pub(crate) ACQ(u64) @ 0x30 {
        63:0 address;
    }

    /// Controller Memory Buffer Location.
    pub(crate) CMBLOC(u32) @ 0x38 {
        /// Offset in the BAR, in units of CMBSZ.SZU.
        31:12 ofst;
        /// BAR number.
        2:0 bir;
    }

    /// Controller Memory Buffer Size.
    pub(crate) CMBSZ(u32) @ 0x3c {
        /// Size in units of SZU.
        31:12 sz;
        /// Unit: 4 KiB << 4n.
        11:8 szu;
        /// Data of commands that move data to the drive may lie in the CMB.
        4:4 wds => bool;
        /// Data of commands that move data from the drive may lie in the CMB.
        3:3 rds => bool;
    }

    /// Controller Memory Buffer Memory Space Control.
    pub(crate) CMBMSC(u64) @ 0x50 {
        /// Base address by which the controller recognises its CMB, in 4 KiB.
        63:12 cba;
        /// CBA is valid.
        1:1 cmse => bool;
        /// Makes CMBLOC and CMBSZ readable.
        0:0 cre => bool;
    }

    /// Controller Memory Buffer Status.
    pub(crate) CMBSTS(u32) @ 0x58 {
        /// CBA is invalid.
        0:0 cbai => bool;
    }

    /// Controller Ready Timeouts.
    pub(crate) CRTO(u32) @ 0x68 {
        /// Longest time until ready with media, in 500 ms.
        15:0 crwmt;
    }

    /// Persistent Memory Region Capabilities.
    pub(crate) PMRCAP(u32) @ 0xe00 {
        /// The PMR can be given a base address for the controller's own accesses.
        24:24 cmss => bool;
        /// Longest time until ready, in units of PMRTU.
        23:16 pmrto;
        /// Unit of PMRTO: 0 is 500 ms, 1 a minute.
        9:8 pmrtu;
        /// BAR number.
        7:5 bir;
        /// Data of commands that move data to the drive may lie in the PMR.
        4:4 wds => bool;
        /// Data of commands that move data from the drive may lie in the PMR.
        3:3 rds => bool;
    }

    /// Persistent Memory Region Control.
    pub(crate) PMRCTL(u32) @ 0xe04 {
        0:0 en => bool;
    }

    /// Persistent Memory Region Status.
    pub(crate) PMRSTS(u32) @ 0xe08 {
        /// CBA is invalid.
        12:12 cbai => bool;
        /// Health: 0 normal.
        11:9 hsts;
        /// Not ready.
        8:8 nrdy => bool;
        /// Error code: 0 none.
        7:0 err;
    }

    /// Persistent Memory Region Memory Space Control, lower half.
    pub(crate) PMRMSCL(u32) @ 0xe14 {
        /// Bits 31:12 of the base address.
        31:12 cba;
        /// CBA is valid.
        1:1 cmse => bool;
    }

    /// Persistent Memory Region Memory Space Control, upper half.
    pub(crate) PMRMSCU(u32) @ 0xe18 {
        /// Bits 63:32 of the base address.
        31:0 cba;
    }
}

/// Bytes of a BAR that hold registers; doorbells follow.
const REGISTERS: usize = 0x1000;

/// I/O queue pairs and the admin queue that this driver may create at most.
pub(super) const MAX_QUEUES: u16 = 17;

/// Which doorbell of a queue pair.
#[derive(Clone, Copy)]
pub(crate) enum Doorbell {
    /// Submission queue tail.
    Submission,
    /// Completion queue head.
    Completion,
}

/// The mapped registers of one controller. Every access fails with `ENODEV` once it was unbound.
pub(crate) struct Registers {
    bar: DevresBar<REGISTERS>,
    len: u64,
    /// Bytes between doorbells.
    stride: usize,
    /// The capabilities, read once when the drive was bound.
    cap: CAP,
}

macro_rules! accessors {
    (@read $name:ident $reg:ident $(#[$doc:meta])*) => {
        $(#[$doc])*
        pub(crate) fn $name(&self) -> Result<$reg> {
            let bar = self.bar.try_access().ok_or(ENODEV)?;
            (&*bar).try_read($reg)
        }
    };
    (@write $name:ident $reg:ident $(#[$doc:meta])*) => {
        $(#[$doc])*
        pub(crate) fn $name(&self, value: $reg) -> Result {
            let bar = self.bar.try_access().ok_or(ENODEV)?;
            (&*bar).try_write_reg(value)
        }
    };
    ($($(#[$doc:meta])* $how:ident $name:ident => $reg:ident;)*) => {
        $(accessors!(@$how $name $reg $(#[$doc])*);)*
    };
}

impl Registers {
    /// Maps BAR 0 and reads the capabilities.
    ///
    /// # Errors
    ///
    /// - `EBUSY` if the BAR is taken, `ENOMEM`, `EINVAL` if it is shorter than the registers.
    /// - `ENODEV` if the device answers with all ones.
    pub(crate) fn new(pdev: &pci::Device<Bound>) -> Result<Self> {
        let len = pdev.resource_len(0)?;
        let bar = pdev
            .iomap_region_sized::<REGISTERS>(0, c"csd")?
            .into_devres()?;
        let mut regs = Self {
            bar,
            len,
            stride: 4,
            cap: CAP::from(0),
        };
        regs.cap = regs.read_cap()?;
        if regs.cap.into_raw() == u64::MAX {
            return Err(ENODEV);
        }
        regs.stride = 4usize << regs.cap.dstrd().get();
        Ok(regs)
    }

    /// The capabilities as they were at binding.
    pub(crate) fn cap(&self) -> CAP {
        self.cap
    }

    /// The longest time that a change of RDY may take, in milliseconds, at least a second.
    pub(crate) fn ready_timeout_ms(&self) -> u32 {
        let with_media = match self.cap.crwms() {
            true => self.crto().map_or(0, |crto| crto.crwmt().get()),
            false => 0,
        };
        let units = (self.cap.to().get() as u32).max(with_media);
        // A field of all ones would be nine hours: ten minutes are more than any drive takes.
        units.saturating_mul(500).clamp(1000, 600_000)
    }

    accessors! {
        /// Reads CAP afresh.
        read read_cap => CAP;
        /// Reads VS.
        read vs => VS;
        /// Reads CC.
        read cc => CC;
        /// Writes CC.
        write set_cc => CC;
        /// Writes AQA.
        write set_aqa => AQA;
        /// Writes ASQ.
        write set_asq => ASQ;
        /// Writes ACQ.
        write set_acq => ACQ;
        /// Reads CRTO.
        read crto => CRTO;
        /// Reads CMBLOC.
        read cmbloc => CMBLOC;
        /// Reads CMBSZ.
        read cmbsz => CMBSZ;
        /// Writes CMBMSC.
        write set_cmbmsc => CMBMSC;
        /// Reads CMBSTS.
        read cmbsts => CMBSTS;
        /// Reads PMRCAP.
        read pmrcap => PMRCAP;
        /// Writes PMRCTL.
        write set_pmrctl => PMRCTL;
        /// Reads PMRSTS.
        read pmrsts => PMRSTS;
        /// Writes PMRMSCL.
        write set_pmrmscl => PMRMSCL;
        /// Writes PMRMSCU.
        write set_pmrmscu => PMRMSCU;
    }

    /// Reads CSTS.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if the device was unbound or answers with all ones.
    pub(crate) fn csts(&self) -> Result<CSTS> {
        let bar = self.bar.try_access().ok_or(ENODEV)?;
        let csts = (&*bar).read(CSTS);
        if csts.into_raw() == u32::MAX {
            return Err(ENODEV);
        }
        Ok(csts)
    }

    /// Whether the doorbells of queue pair `qid` lie inside the BAR.
    pub(crate) fn has_doorbells(&self, qid: u16) -> bool {
        let last = self.doorbell_offset(qid, Doorbell::Completion);
        (last as u64).saturating_add(4) <= self.len
    }

    /// First byte of BAR 0 that is neither register nor doorbell of the queues that may exist.
    pub(super) fn doorbell_end(&self) -> u64 {
        self.doorbell_offset(MAX_QUEUES, Doorbell::Submission) as u64
    }

    fn doorbell_offset(&self, qid: u16, which: Doorbell) -> usize {
        let index = usize::from(qid) << 1 | usize::from(matches!(which, Doorbell::Completion));
        // At most 131071 doorbells, at most 4 << 15 bytes apart: fits in 64 bits.
        REGISTERS.wrapping_add(index.wrapping_mul(self.stride))
    }

    /// Rings a doorbell. What it announces must have been written before, with a DMA barrier.
    pub(crate) fn ring(&self, qid: u16, which: Doorbell, value: u16) -> Result {
        let bar = self.bar.try_access().ok_or(ENODEV)?;
        (&*bar).try_write32(u32::from(value), self.doorbell_offset(qid, which))
    }
}
