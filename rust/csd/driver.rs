// SPDX-License-Identifier: GPL-2.0

//! The PCI driver: binds a function, and undoes that in the right order.
//!
//! Owns what lives as long as a binding. Claims nothing by itself: its id table is empty, so a device
//! comes only when its `driver_override` names this driver.

use crate::{
    drive::{
        self,
        Drive, //
    },
    module_parameters,
    nvme::{
        controller::{
            Controller,
            Settings, //
        },
        queue::VectorHandler,
        supervisor, //
    },
    sys::{
        self,
        irq::Interrupts,
        kthread::{
            KThread,
            Kick, //
        },
        pci::Enabled, //
    }, //
};
use kernel::{
    device::{
        Bound,
        Core, //
    },
    device_id::IdArray,
    pci,
    prelude::*,
    str::CString,
    sync::Arc, //
};

/// What exists while a function is bound. Dropped in this order after [`CsdDriver::unbind`].
pub(crate) struct Binding<'bound> {
    /// Joined first: it sends commands.
    _supervisor: KThread,
    /// No handler runs any more once this is gone.
    _interrupts: Interrupts<'bound, VectorHandler>,
    drive: Arc<Drive>,
    controller: Arc<Controller>,
    _enabled: Enabled,
}

/// The driver.
pub(crate) struct CsdDriver;

/// No ids: neither a modalias that would load the module for every drive, nor `new_id`, which an empty
/// table (rather than none) refuses.
static NO_IDS: IdArray<pci::DeviceId, (), 0> = IdArray::new([]);

impl pci::Driver for CsdDriver {
    type IdInfo = ();
    type Data<'bound> = Binding<'bound>;
    const ID_TABLE: pci::IdTable<()> = &NO_IDS;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound ()>,
    ) -> impl PinInit<Binding<'bound>, Error> + 'bound {
        bind(pdev).inspect_err(|error| dev_err!(pdev, "not bound: {:?}\n", error))
    }

    fn unbind<'bound>(pdev: &'bound pci::Device<Core<'_>>, binding: Pin<&Binding<'bound>>) {
        binding.drive.withdraw();
        binding.controller.stop();
        binding.controller.release(pdev.as_ref());
        drive::retire(&binding.drive);
        dev_info!(pdev, "csd{} unbound\n", binding.drive.index());
    }
}

impl sys::pci::Shutdown for CsdDriver {
    fn shutdown(binding: Pin<&Binding<'_>>) {
        binding.controller.stop();
    }
}

fn settings() -> Settings {
    Settings {
        command_timeout_ms: module_parameters::command_timeout_ms
            .value()
            .clamp(100, 600_000),
        io_queues: module_parameters::io_queues.value().clamp(1, 16),
        io_depth: module_parameters::io_depth.value().clamp(2, 1024),
        pmr_signature: drive::PMR_SIGNATURE,
    }
}

fn bind<'bound>(pdev: &'bound pci::Device<Core<'_>>) -> Result<Binding<'bound>> {
    let enabled = Enabled::new(pdev)?;
    let settings = settings();
    let kick = Kick::new()?;
    let bound: &'bound pci::Device<Bound> = pdev;
    let mut interrupts = Interrupts::new(bound, u32::from(settings.io_queues).saturating_add(1))?;
    let controller = Controller::new(bound, settings, interrupts.len(), kick.clone())?;
    for vector in 0..interrupts.len() {
        interrupts.handle(controller.vector_handler(vector)?)?;
    }
    let (drive, supervisor) = start(bound, &controller, kick).inspect_err(|_| {
        controller.stop();
        controller.release(bound.as_ref());
    })?;
    Ok(Binding {
        _supervisor: supervisor,
        _interrupts: interrupts,
        drive,
        controller,
        _enabled: enabled,
    })
}

fn start(
    pdev: &pci::Device<Bound>,
    controller: &Arc<Controller>,
    kick: Arc<Kick>,
) -> Result<(Arc<Drive>, KThread)> {
    controller.start(pdev)?;
    let drive = Drive::new(controller.clone())?;
    let index = drive.index();
    let supervised = drive.clone();
    let watched = controller.clone();
    let supervisor = CString::try_from_fmt(fmt!("csd{}-nvme", index)).and_then(|name| {
        KThread::spawn(&name, kick, move |kick| {
            supervisor::run(&watched, kick, &|notice| supervised.notice(notice));
        })
    });
    let supervisor = supervisor
        .and_then(|supervisor| drive.announce().map(|()| supervisor))
        .inspect_err(|_| drive::retire(&drive))?;
    drive.with_info(|info| {
        if let Some(info) = info {
            dev_info!(
                pdev,
                "csd{}: {} {} (firmware {})\n",
                index,
                info.model,
                info.serial,
                info.firmware
            );
        }
    });
    Ok((drive, supervisor))
}
