// SPDX-License-Identifier: GPL-2.0

//! csd: NVMe computational storage drives that work together.
//!
//! The root of the module: declares its parts and the order in which they start and end.

#![crate_name = "csd"]

use chardev::Control;
use kernel::{
    driver::Registration,
    prelude::*,
    sync::Arc,
    InPlaceModule, //
};
use mesh::registry::Registry;
use sys::chardev::NodeRegistration;

mod chardev;
mod drive;
mod driver;
mod events;
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    reason = "shared with other hosts of the protocol, which use more of it"
)]
#[path = "../idc/mod.rs"]
mod idc;
mod mesh;
mod nvme;
mod pipeline;
mod proxy;
mod sys;
mod uapi;

/// Ends what has no field of its own in [`CsdModule`].
struct Globals {
    registry: Arc<Registry>,
}

impl Globals {
    /// What drives need before one can be bound.
    fn new() -> Result<Self> {
        sys::global::init();
        let registry = Registry::new()?;
        drive::set_observer(Some(registry.clone()));
        Ok(Self { registry })
    }
}

impl Drop for Globals {
    fn drop(&mut self) {
        self.registry.shut_down();
        drive::set_observer(None);
    }
}

/// Uevents go out from when this is made until it is dropped.
struct Announcing(Arc<Registry>);

impl Announcing {
    /// Makes events uevents of `node`'s device.
    fn on(registry: &Arc<Registry>, node: &NodeRegistration<Control>) -> Self {
        registry.events.announce_on(Some(node.device()));
        Self(registry.clone())
    }
}

impl Drop for Announcing {
    fn drop(&mut self) {
        self.0.events.announce_on(None);
    }
}

/// The loaded module. Fields are dropped in order of declaration.
#[pin_data]
struct CsdModule {
    /// Unbinds every drive.
    #[pin]
    _driver: Registration<sys::pci::Adapter<driver::CsdDriver>>,
    /// Before the device of the uevents goes.
    _announcing: Announcing,
    /// `/dev/csd`; nobody has it open any more.
    #[pin]
    node: NodeRegistration<Control>,
    /// Last, as drives use them until they are unbound.
    globals: Globals,
}

impl InPlaceModule for CsdModule {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // Initialised in the order of this list: the driver last, as drives may be bound at once.
        try_pin_init!(Self {
            globals: Globals::new()?,
            node <- NodeRegistration::register(
                c"csd",
                chardev::MODE,
                Arc::new(Control(globals.registry.clone()), GFP_KERNEL)?,
            ),
            _announcing: Announcing::on(&globals.registry, &node),
            _driver <- Registration::new(<LocalModule as kernel::ModuleMetadata>::NAME, module),
        })
    }
}

module! {
    type: CsdModule,
    name: "csd",
    authors: ["The csd authors"],
    description: "NVMe computational storage drives that work together",
    license: "GPL",
    params: {
        command_timeout_ms: u32 {
            default: 30000,
            description: "Time that a drive may take for a command, and once more after it was aborted, in milliseconds (100 to 600000)",
        },
        io_queues: u16 {
            default: 1,
            description: "I/O queue pairs of a drive (1 to 16)",
        },
        io_depth: u16 {
            default: 64,
            description: "Entries of an I/O queue (2 to 1024)",
        },
    },
}
