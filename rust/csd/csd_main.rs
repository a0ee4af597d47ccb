// SPDX-License-Identifier: GPL-2.0

//! csd: NVMe computational storage drives that work together.
//!
//! The root of the module: declares its parts and the order in which they start and end.

#![crate_name = "csd"]

use kernel::{
    driver::Registration,
    prelude::*,
    InPlaceModule, //
};

mod drive;
mod driver;
mod nvme;
mod sys;
mod uapi;

/// Ends what has no field of its own in [`CsdModule`].
struct Globals;

impl Drop for Globals {
    fn drop(&mut self) {
        drive::set_observer(None);
    }
}

/// The loaded module. Fields are dropped in order of declaration.
#[pin_data]
struct CsdModule {
    /// Unbinds every drive.
    #[pin]
    _driver: Registration<sys::pci::Adapter<driver::CsdDriver>>,
    /// Last, as drives use them until they are unbound.
    _globals: Globals,
}

impl InPlaceModule for CsdModule {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // Initialised in the order of this list: the driver last, as drives may be bound at once.
        try_pin_init!(Self {
            _globals: {
                sys::global::init();
                Globals
            },
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
