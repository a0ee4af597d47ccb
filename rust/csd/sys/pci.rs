// SPDX-License-Identifier: GPL-2.0

//! What the `kernel` crate's PCI abstraction does not reach.
//!
//! Owns: the registration of a driver with a shutdown callback, enabling with a
//! matching disable, claims on BARs and mappings of parts of them. Never touches registers.

use core::marker::PhantomData;
use kernel::{
    bindings,
    device::{
        Bound,
        Core,
        CoreInternal, //
    },
    driver::{
        DriverLayout,
        RegistrationOps, //
    },
    pci,
    prelude::*,
    sync::aref::ARef,
    types::Opaque, //
};

/// What a driver does when the machine shuts down or reboots.
pub(crate) trait Shutdown: pci::Driver {
    /// Stops the device. Interrupts still work; nothing may be freed.
    fn shutdown(data: Pin<&Self::Data<'_>>);
}

/// Registers a [`pci::Driver`] together with its shutdown callback.
pub(crate) struct Adapter<T>(PhantomData<T>);

// SAFETY: The same layout as `pci::Adapter<T>`, whose registration this type delegates to.
unsafe impl<T: Shutdown> DriverLayout for Adapter<T> {
    type DriverType = bindings::pci_driver;
    type DriverData<'bound> = T::Data<'bound>;
    const DEVICE_DRIVER_OFFSET: usize = core::mem::offset_of!(bindings::pci_driver, driver);
}

// SAFETY: `unregister` is the delegate's own and valid after a successful `register`.
unsafe impl<T: Shutdown> RegistrationOps for Adapter<T> {
    unsafe fn register(
        pdrv: &Opaque<bindings::pci_driver>,
        name: &'static CStr,
        module: &'static ThisModule,
    ) -> Result {
        // SAFETY: Not registered yet; the delegate sets only name, probe, remove and id_table.
        unsafe { (*pdrv.get()).shutdown = Some(shutdown::<T>) };
        // SAFETY: By the requirements of this function.
        unsafe { <pci::Adapter<T> as RegistrationOps>::register(pdrv, name, module) }
    }

    unsafe fn unregister(pdrv: &Opaque<bindings::pci_driver>) {
        // SAFETY: By the requirements of this function.
        unsafe { <pci::Adapter<T> as RegistrationOps>::unregister(pdrv) }
    }
}

extern "C" fn shutdown<T: Shutdown>(pdev: *mut bindings::pci_dev) {
    // SAFETY: The PCI core passes a valid device and holds its lock.
    let pdev = unsafe { &*pdev.cast::<pci::Device<CoreInternal<'_>>>() };
    // SAFETY: The callback is only called for a device that is bound to this driver, so probe has
    // stored a `Pin<KBox<T::Data>>`, and unbind cannot run while the device lock is held.
    let data = unsafe { pdev.as_ref().drvdata_borrow::<T::Data<'_>>() };
    T::shutdown(data);
}

/// An enabled function; disabled again (bus mastering off) when dropped.
pub(crate) struct Enabled {
    pdev: ARef<pci::Device>,
}

impl Enabled {
    /// Enables memory decoding and bus mastering, and 64-bit DMA.
    ///
    /// # Errors
    ///
    /// - Errors of the PCI core and of the DMA layer.
    pub(crate) fn new(pdev: &pci::Device<Core<'_>>) -> Result<Self> {
        pdev.enable_device_mem()?;
        let enabled = Self { pdev: pdev.into() };
        // SAFETY: Probe has allocated no DMA memory yet.
        unsafe {
            kernel::dma::Device::dma_set_mask_and_coherent(pdev, kernel::dma::DmaMask::new::<64>())?
        };
        pdev.set_master();
        Ok(enabled)
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        // SAFETY: Balances `enable_device_mem`; the device is still ours to disable, as this value
        // lives in the driver's data.
        unsafe { bindings::pci_disable_device(raw(&self.pdev)) };
    }
}

/// What a driver may do to its function, beside registers, for as long as it is bound.
pub(crate) struct Function {
    pdev: ARef<pci::Device>,
}

impl Function {
    /// A handle to `pdev`.
    pub(crate) fn new(pdev: &pci::Device<Bound>) -> Self {
        Self { pdev: pdev.into() }
    }

    /// Lets the device start transactions.
    pub(crate) fn enable_master(&self) {
        // SAFETY: A valid device.
        unsafe { bindings::pci_set_master(raw(&self.pdev)) };
    }

    /// Stops the device from starting transactions: the last resort against stray DMA.
    pub(crate) fn disable_master(&self) {
        // SAFETY: A valid device.
        unsafe { bindings::pci_clear_master(raw(&self.pdev)) };
    }

    /// Whether the device answers in configuration space. Slow; may be called in any context that
    /// may read configuration space.
    pub(crate) fn is_present(&self) -> bool {
        // SAFETY: A valid device.
        unsafe { bindings::pci_device_is_present(raw(&self.pdev)) }
    }
}

fn raw(pdev: &pci::Device) -> *mut bindings::pci_dev {
    // `pci::Device` is a transparent wrapper of `struct pci_dev`.
    core::ptr::from_ref(pdev)
        .cast::<bindings::pci_dev>()
        .cast_mut()
}

/// How the CPU caches a mapping of device memory.
#[derive(Clone, Copy)]
pub(crate) enum Caching {
    /// Every access reaches the device, in order.
    Uncached,
    /// Stores may be merged until a write barrier.
    WriteCombining,
}

/// One memory BAR of a bound function, reserved for this driver.
///
/// Dropping it releases the reservation. Mappings made from it must be gone by then.
pub(crate) struct BarClaim {
    pdev: ARef<pci::Device>,
    bar: u32,
    start: u64,
    len: u64,
    bus: u64,
    /// Whether this claim made the reservation (and not the register mapping of the same BAR).
    reserved: bool,
}

impl BarClaim {
    /// Claims BAR `bar`; `shared` says that the caller has reserved it by other means.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if there is no such BAR; `ENXIO` if it is not memory; `EBUSY` if somebody has it.
    pub(crate) fn new(pdev: &pci::Device<Bound>, bar: u32, shared: bool) -> Result<Self> {
        let start = pdev.resource_start(bar)?;
        let len = pdev.resource_len(bar)?;
        let ptr = raw(pdev);
        // SAFETY: `resource_len` checked that `bar` is an index into the array of resources.
        let resource = unsafe {
            (&raw mut (*ptr).resource)
                .cast::<bindings::resource>()
                .add(bar as usize)
        };
        // SAFETY: As above.
        let flags = unsafe { (*resource).flags };
        if len == 0 || flags & (bindings::IORESOURCE_MEM as usize) == 0 {
            return Err(ENXIO);
        }
        let mut region = bindings::pci_bus_region { start: 0, end: 0 };
        // SAFETY: A valid bus, output and resource.
        unsafe { bindings::pcibios_resource_to_bus((*ptr).bus, &mut region, resource) };
        if !shared {
            // SAFETY: A valid device and BAR number.
            let ret =
                unsafe { bindings::pci_request_region(ptr, bar.try_into()?, c"csd".as_char_ptr()) };
            if ret != 0 {
                return Err(EBUSY);
            }
        }
        Ok(Self {
            pdev: pdev.into(),
            bar,
            start,
            len,
            bus: region.start,
            reserved: !shared,
        })
    }

    /// The number of the BAR.
    pub(crate) fn bar(&self) -> u32 {
        self.bar
    }

    /// Bytes in the BAR.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The address of the BAR's first byte on the device's bus.
    pub(crate) fn bus_address(&self) -> u64 {
        self.bus
    }

    /// Maps `len` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if empty or not page aligned; `ERANGE` outside the BAR; `ENOMEM`.
    pub(crate) fn map(&self, offset: u64, len: u64, caching: Caching) -> Result<IoMapping> {
        const PAGE: u64 = kernel::page::PAGE_SIZE as u64;
        if len == 0 || offset % PAGE != 0 || len % PAGE != 0 {
            return Err(EINVAL);
        }
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(ERANGE);
        }
        let start = self.start.checked_add(offset).ok_or(ERANGE)?;
        let size = usize::try_from(len)?;
        // SAFETY: The range lies in a memory BAR that is reserved for this driver.
        let base = unsafe {
            match caching {
                Caching::Uncached => bindings::ioremap(start, size),
                Caching::WriteCombining => bindings::ioremap_wc(start, size),
            }
        };
        if base.is_null() {
            return Err(ENOMEM);
        }
        Ok(IoMapping {
            base: base.cast(),
            len: size,
        })
    }
}

impl Drop for BarClaim {
    fn drop(&mut self) {
        if self.reserved {
            // SAFETY: Reserved in `new` for a valid BAR; the number fits, as it did there.
            unsafe { bindings::pci_release_region(raw(&self.pdev), self.bar as c_int) };
        }
    }
}

/// A mapping of device memory; unmapped when dropped.
pub(crate) struct IoMapping {
    base: *mut u8,
    len: usize,
}

// SAFETY: A mapping is an address range of the kernel, valid on every CPU.
unsafe impl Send for IoMapping {}
// SAFETY: As above; accesses are volatile.
unsafe impl Sync for IoMapping {}

impl IoMapping {
    /// The first byte, aligned to a page.
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for IoMapping {
    fn drop(&mut self) {
        // SAFETY: Mapped in `BarClaim::map`.
        unsafe { bindings::iounmap(self.base.cast()) };
    }
}
