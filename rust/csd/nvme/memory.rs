// SPDX-License-Identifier: GPL-2.0

//! The memory that a controller exposes: CMB and PMR.
//!
//! Owns finding, enabling, mapping and disabling it (NVM Express Base Specification 2.0, sections
//! 8.5 and 8.14). Every number in the registers is checked against the BAR. Failing here costs the
//! drive that memory and nothing else. Never decides what lies where inside.
//!
//! The base address that the controller is told (CBA) is the bus address of its own BAR. A command
//! may name an address in that range, and the controller then reaches its memory without a bus
//! transaction, so neither IOMMU nor ACS has a say; the DMA layer keeps host bridge windows free of
//! I/O virtual addresses, so nothing else has such an address.

use super::regs::{
    Registers,
    CMBMSC,
    PMRCTL,
    PMRMSCL,
    PMRMSCU, //
};
use crate::sys::{
    pci::{
        BarClaim,
        Caching, //
    },
    region::{
        MemoryKind,
        Region, //
    }, //
};
use kernel::{
    device::{
        self,
        Bound, //
    },
    io::poll::read_poll_timeout,
    new_spinlock,
    num::Bounded,
    pci,
    prelude::*,
    sync::SpinLock,
    time::Delta, //
};

/// Whether a drive's memory can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryState {
    /// The controller has none, or describes it impossibly.
    Absent,
    /// A PMR that may hold somebody's data, and nobody consented to its use.
    NeedsConsent,
    /// In use.
    Ready,
    /// It could not be enabled.
    Failed,
}

/// What is known of one kind of memory.
#[derive(Clone, Copy)]
pub(crate) struct MemoryInfo {
    pub(crate) state: MemoryState,
    /// Bytes.
    pub(crate) len: u64,
    /// READ commands may put data there.
    pub(crate) from_drive: bool,
    /// WRITE commands may take data from there.
    pub(crate) to_drive: bool,
}

impl MemoryInfo {
    const NONE: Self = Self {
        state: MemoryState::Absent,
        len: 0,
        from_drive: false,
        to_drive: false,
    };
}

/// One kind of memory as its submitters see it.
struct Published {
    info: MemoryInfo,
    region: Option<Region>,
}

/// Where one kind of memory is; guarded by the controller's control lock.
#[derive(Clone, Copy)]
struct Place {
    bar: u32,
    offset: u64,
    len: u64,
}

/// Hardware side: claims on BARs. Guarded by the controller's control lock.
pub(super) struct MemoryControl {
    claims: KVec<BarClaim>,
    cmb: Option<Place>,
    pmr: Option<Place>,
}

impl MemoryControl {
    pub(super) fn new() -> Self {
        Self {
            claims: KVec::new(),
            cmb: None,
            pmr: None,
        }
    }

    fn claim(&mut self, pdev: &pci::Device<Bound>, bar: u32) -> Result<&BarClaim> {
        if !self.claims.iter().any(|claim| claim.bar() == bar) {
            // BAR 0 is reserved by the mapping of the registers.
            let claim = BarClaim::new(pdev, bar, bar == 0)?;
            self.claims.push(claim, GFP_KERNEL)?;
        }
        self.find(bar)
    }

    fn find(&self, bar: u32) -> Result<&BarClaim> {
        self.claims
            .iter()
            .find(|claim| claim.bar() == bar)
            .ok_or(ENODEV)
    }

    /// Gives the BARs back. All regions must be revoked.
    pub(super) fn release(&mut self) {
        self.claims.clear();
        self.cmb = None;
        self.pmr = None;
    }
}

/// CMB and PMR of one controller.
#[pin_data]
pub(super) struct Memory {
    #[pin]
    cmb: SpinLock<Published>,
    #[pin]
    pmr: SpinLock<Published>,
    /// Recognises a PMR that this protocol has formatted before.
    signature: fn(&Region) -> bool,
}

impl Memory {
    pub(super) fn new(signature: fn(&Region) -> bool) -> impl PinInit<Self> {
        pin_init!(Self {
            cmb <- new_spinlock!(Published { info: MemoryInfo::NONE, region: None }, "csd::Cmb"),
            pmr <- new_spinlock!(Published { info: MemoryInfo::NONE, region: None }, "csd::Pmr"),
            signature,
        })
    }

    fn slot(&self, kind: MemoryKind) -> &SpinLock<Published> {
        match kind {
            MemoryKind::Cmb => &self.cmb,
            MemoryKind::Pmr => &self.pmr,
        }
    }

    pub(super) fn info(&self, kind: MemoryKind) -> MemoryInfo {
        self.slot(kind).lock().info
    }

    pub(super) fn region(&self, kind: MemoryKind) -> Option<Region> {
        self.slot(kind).lock().region.clone()
    }

    fn publish(&self, kind: MemoryKind, state: MemoryState, region: Option<Region>) {
        let old = {
            let mut published = self.slot(kind).lock();
            published.info.state = state;
            core::mem::replace(&mut published.region, region)
        };
        if let Some(old) = old {
            old.revoke();
        }
    }

    /// Finds both kinds, claims their BARs and enables what may be enabled. Once, at binding.
    pub(super) fn discover(
        &self,
        control: &mut MemoryControl,
        regs: &Registers,
        pdev: &pci::Device<Bound>,
    ) {
        let dev: &device::Device<Bound> = pdev.as_ref();
        match self.find_cmb(control, regs, pdev) {
            Ok(true) => {
                if let Err(error) = self.enable_cmb(control, regs) {
                    dev_warn!(dev, "CMB not usable: {:?}\n", error);
                    self.publish(MemoryKind::Cmb, MemoryState::Failed, None);
                    let _ = regs.set_cmbmsc(CMBMSC::zeroed());
                }
            }
            Ok(false) => (),
            Err(error) => dev_warn!(dev, "CMB ignored, its description is wrong: {:?}\n", error),
        }
        match self.find_pmr(control, regs, pdev) {
            Ok(true) => {
                if let Err(error) = self.use_pmr(control, regs, dev, false) {
                    dev_warn!(dev, "PMR not usable: {:?}\n", error);
                }
            }
            Ok(false) => (),
            Err(error) => dev_warn!(dev, "PMR ignored, its description is wrong: {:?}\n", error),
        }
    }

    fn find_cmb(
        &self,
        control: &mut MemoryControl,
        regs: &Registers,
        pdev: &pci::Device<Bound>,
    ) -> Result<bool> {
        if regs.cap().cmbs() {
            regs.set_cmbmsc(CMBMSC::zeroed().with_cre(true))?;
        } else if u32::from(regs.vs()?) >= 0x1_0400 {
            return Ok(false);
        }
        let size = regs.cmbsz()?;
        if size.sz().get() == 0 {
            return Ok(false);
        }
        let location = regs.cmbloc()?;
        let unit = 4096u64
            .checked_shl(size.szu().get().saturating_mul(4))
            .filter(|unit| *unit >= 4096)
            .ok_or(ERANGE)?;
        let bar = location.bir().get();
        let offset = unit
            .checked_mul(location.ofst().get().into())
            .ok_or(ERANGE)?;
        let mut len = unit.checked_mul(size.sz().get().into()).ok_or(ERANGE)?;
        // BAR 1 is the upper half of BAR 0; what follows BAR 5 is no BAR of this function.
        if bar == 1 || bar > 5 || (bar == 0 && offset < regs.doorbell_end()) {
            return Err(EINVAL);
        }
        let claim = control.claim(pdev, bar)?;
        let room = claim
            .len()
            .checked_sub(offset)
            .filter(|room| *room > 0)
            .ok_or(ERANGE)?;
        if len > room {
            // A bridge may have limited the BAR; what is there is still good.
            let dev: &device::Device<Bound> = pdev.as_ref();
            dev_warn!(dev, "CMB of {} bytes cut to the {} in its BAR\n", len, room);
            len = room;
        }
        control.cmb = Some(Place { bar, offset, len });
        self.cmb.lock().info = MemoryInfo {
            state: MemoryState::Failed,
            len,
            from_drive: size.rds(),
            to_drive: size.wds(),
        };
        Ok(true)
    }

    fn enable_cmb(&self, control: &MemoryControl, regs: &Registers) -> Result {
        let place = control.cmb.ok_or(ENODEV)?;
        let claim = control.find(place.bar)?;
        let bus = claim
            .bus_address()
            .checked_add(place.offset)
            .ok_or(ERANGE)?;
        Self::program_cmb(regs, bus)?;
        let map = claim.map(place.offset, place.len, Caching::Uncached)?;
        let region = Region::device(map, bus)?;
        self.publish(MemoryKind::Cmb, MemoryState::Ready, Some(region));
        Ok(())
    }

    fn program_cmb(regs: &Registers, bus: u64) -> Result {
        if regs.cap().cmbs() {
            let cba = Bounded::<u64, 64>::from(bus).shr::<12, 52>();
            regs.set_cmbmsc(
                CMBMSC::zeroed()
                    .with_cba(cba)
                    .with_cmse(true)
                    .with_cre(true),
            )?;
            if regs.cmbsts()?.cbai() {
                return Err(EADDRNOTAVAIL);
            }
        }
        Ok(())
    }

    fn find_pmr(
        &self,
        control: &mut MemoryControl,
        regs: &Registers,
        pdev: &pci::Device<Bound>,
    ) -> Result<bool> {
        if !regs.cap().pmrs() {
            return Ok(false);
        }
        let cap = regs.pmrcap()?;
        let bar = cap.bir().get();
        // 2 to 5: BARs 0 and 1 hold the registers.
        if !(2..=5).contains(&bar) {
            return Err(EINVAL);
        }
        // A PMR has its BAR for itself: two allocators would hand out the same bytes.
        if control.cmb.is_some_and(|cmb| cmb.bar == bar) {
            return Err(EINVAL);
        }
        let len = control.claim(pdev, bar)?.len();
        control.pmr = Some(Place {
            bar,
            offset: 0,
            len,
        });
        self.pmr.lock().info = MemoryInfo {
            state: MemoryState::NeedsConsent,
            len,
            from_drive: cap.rds(),
            to_drive: cap.wds(),
        };
        Ok(true)
    }

    /// Enables the PMR; keeps it if `consent` is given or if it carries our signature.
    ///
    /// # Errors
    ///
    /// - `ENODEV` if there is none or the drive is gone, `ETIMEDOUT` if it does not become ready,
    ///   `EIO` if the controller says that it is not healthy, `ENOMEM`, `EADDRNOTAVAIL`.
    pub(super) fn use_pmr(
        &self,
        control: &MemoryControl,
        regs: &Registers,
        dev: &device::Device,
        consent: bool,
    ) -> Result {
        let place = control.pmr.ok_or(ENODEV)?;
        if self.pmr.lock().region.is_some() {
            return Ok(());
        }
        let claim = control.find(place.bar)?;
        let enabled = Self::program_pmr(regs, dev, claim.bus_address())
            .and_then(|()| claim.map(place.offset, place.len, Caching::WriteCombining))
            .and_then(|map| Region::device(map, claim.bus_address()));
        let region = match enabled {
            Ok(region) => region,
            Err(error) => {
                self.publish(MemoryKind::Pmr, MemoryState::Failed, None);
                Self::program_pmr_off(regs);
                return Err(error);
            }
        };
        if consent || (self.signature)(&region) {
            self.publish(MemoryKind::Pmr, MemoryState::Ready, Some(region));
        } else {
            region.revoke();
            Self::program_pmr_off(regs);
            self.publish(MemoryKind::Pmr, MemoryState::NeedsConsent, None);
        }
        Ok(())
    }

    /// Ends all use of the PMR and disables it.
    pub(super) fn drop_pmr(&self, control: &MemoryControl, regs: &Registers) {
        if control.pmr.is_some() {
            self.publish(MemoryKind::Pmr, MemoryState::NeedsConsent, None);
            Self::program_pmr_off(regs);
        }
    }

    fn program_pmr(regs: &Registers, dev: &device::Device, bus: u64) -> Result {
        let cap = regs.pmrcap()?;
        let unit_ms: i64 = match cap.pmrtu().get() {
            0 => 500,
            1 => 60_000,
            _ => return Err(EPROTO),
        };
        let limit = unit_ms
            .saturating_mul(cap.pmrto().get().into())
            .clamp(1000, 600_000);
        if !cap.cmss() {
            // Without a base address no command can name this memory.
            return Err(EOPNOTSUPP);
        }
        let low = Bounded::<u32, 32>::from(bus as u32).shr::<12, 20>();
        regs.set_pmrmscu(PMRMSCU::zeroed().with_cba((bus >> 32) as u32))?;
        regs.set_pmrmscl(PMRMSCL::zeroed().with_cba(low).with_cmse(true))?;
        regs.set_pmrctl(PMRCTL::zeroed().with_en(true))?;
        // Reading the status may flush the whole region, so as seldom as possible.
        let status = read_poll_timeout(
            || match regs.pmrsts()? {
                gone if u32::from(gone) == u32::MAX => Err(ENODEV),
                status => Ok(status),
            },
            |status| !status.nrdy(),
            Delta::from_millis(20),
            Delta::from_millis(limit),
        )?;
        if status.cbai() {
            return Err(EADDRNOTAVAIL);
        }
        if status.err().get() != 0 || status.hsts().get() != 0 {
            dev_warn!(
                dev,
                "PMR reports error {:#x}, health {}\n",
                status.err().get(),
                status.hsts().get()
            );
            return Err(EIO);
        }
        Ok(())
    }

    fn program_pmr_off(regs: &Registers) {
        // Fails only if the drive is gone, and then nothing is left to disable.
        let _ = regs.set_pmrmscl(PMRMSCL::zeroed());
        let _ = regs.set_pmrmscu(PMRMSCU::zeroed());
        let _ = regs.set_pmrctl(PMRCTL::zeroed());
    }

    /// Programs the registers again after a controller reset. Regions stay as they are.
    pub(super) fn restore(&self, regs: &Registers, dev: &device::Device) {
        if let Some(bus) = self
            .region(MemoryKind::Cmb)
            .and_then(|region| region.bus_address())
        {
            if let Err(error) = Self::program_cmb(regs, bus) {
                dev_warn!(dev, "CMB lost by a reset: {:?}\n", error);
                self.publish(MemoryKind::Cmb, MemoryState::Failed, None);
            }
        }
        if let Some(bus) = self
            .region(MemoryKind::Pmr)
            .and_then(|region| region.bus_address())
        {
            if let Err(error) = Self::program_pmr(regs, dev, bus) {
                dev_warn!(dev, "PMR lost by a reset: {:?}\n", error);
                self.publish(MemoryKind::Pmr, MemoryState::Failed, None);
                Self::program_pmr_off(regs);
            }
        }
    }

    /// Revokes both regions and, if the controller still answers, disables the memory. What there is
    /// of it is in `state` from then on.
    pub(super) fn shut_down(
        &self,
        control: &MemoryControl,
        regs: &Registers,
        state: MemoryState,
        reachable: bool,
    ) {
        if control.cmb.is_some() {
            self.publish(MemoryKind::Cmb, state, None);
        }
        if control.pmr.is_some() {
            self.publish(MemoryKind::Pmr, state, None);
        }
        if reachable {
            if control.cmb.is_some() && regs.cap().cmbs() {
                let _ = regs.set_cmbmsc(CMBMSC::zeroed());
            }
            if control.pmr.is_some() {
                Self::program_pmr_off(regs);
            }
        }
    }
}
