// SPDX-License-Identifier: GPL-2.0

//! The interrupt vectors of one PCI function together with their handlers.
//!
//! The `kernel` crate's handler registration borrows from the vector allocation, so the two cannot
//! be fields of one safe struct; this module keeps them together in the right order.

use core::mem::ManuallyDrop;
use kernel::{
    device::Bound,
    irq::{
        Flags,
        Handler,
        Registration, //
    },
    pci::{
        self,
        IrqVectorRegistration, //
    },
    prelude::*, //
};

/// Allocated vectors and one handler each. Dropping it waits for running handlers, then frees both.
///
/// # Invariants
///
/// `vectors` is at a stable address and is dropped after every element of `handlers`.
pub(crate) struct Interrupts<'bound, H: Handler + 'static> {
    handlers: ManuallyDrop<KVec<Pin<KBox<Registration<'bound, H>>>>>,
    vectors: ManuallyDrop<KBox<IrqVectorRegistration<'bound>>>,
}

// SAFETY: Freeing interrupts and vectors is allowed from any thread; the rest is plain data.
unsafe impl<H: Handler + Send> Send for Interrupts<'_, H> {}

impl<'bound, H: Handler + Send + 'static> Interrupts<'bound, H> {
    /// Allocates up to `max` MSI-X (or MSI) vectors, without handlers yet.
    ///
    /// # Errors
    ///
    /// - `ENOSPC` or another error of the PCI core if there is not even one vector.
    pub(crate) fn new(pdev: &'bound pci::Device<Bound>, max: u32) -> Result<Self> {
        let types = pci::IrqTypes::default()
            .with(pci::IrqType::MsiX)
            .with(pci::IrqType::Msi);
        let vectors = KBox::new(pdev.alloc_irq_vectors(1, max, types)?, GFP_KERNEL)?;
        Ok(Self {
            handlers: ManuallyDrop::new(KVec::new()),
            vectors: ManuallyDrop::new(vectors),
        })
    }

    /// Vectors allocated, at least one.
    pub(crate) fn len(&self) -> usize {
        self.vectors.len()
    }

    /// Registers `handler` for the next vector that has none.
    ///
    /// # Errors
    ///
    /// - `EINVAL` if every vector has a handler; `ENOMEM`; errors of `request_irq`.
    pub(crate) fn handle(&mut self, handler: H) -> Result {
        // SAFETY: By the type invariant the vectors outlive the handlers and do not move, so a
        // handler may borrow them for as long as it lives.
        let vectors =
            unsafe { &*core::ptr::from_ref::<IrqVectorRegistration<'bound>>(&self.vectors) };
        let vector = vectors.index(self.handlers.len())?;
        // SAFETY: The registration goes into `self.handlers`, which `drop` drops.
        let registration =
            unsafe { Registration::new(vector.into(), Flags::TRIGGER_NONE, c"csd", Ok(handler)) };
        let registration = KBox::pin_init(registration, GFP_KERNEL)?;
        self.handlers.push(registration, GFP_KERNEL)?;
        Ok(())
    }
}

impl<H: Handler + 'static> Drop for Interrupts<'_, H> {
    fn drop(&mut self) {
        // SAFETY: Each is dropped once, here; handlers first as the type invariant demands.
        unsafe {
            ManuallyDrop::drop(&mut self.handlers);
            ManuallyDrop::drop(&mut self.vectors);
        }
    }
}
