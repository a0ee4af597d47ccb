// SPDX-License-Identifier: GPL-2.0

//! `/dev/csd`: the one door for users.
//!
//! Owns the ioctl table and what is open. Every argument is copied in once, checked by whom it
//! concerns and copied back, also when the call fails: some errors fill a member in. Never carries
//! anything out itself.

mod drive;

pub(crate) use drive::usable;

use crate::{
    events::Reader,
    mesh::registry::Registry,
    pipeline,
    sys::{
        chardev::{
            Node,
            OpenFile, //
        },
        uaccess::Argument, //
    },
    uapi::{
        self,
        csd_info,
        Abi, //
    }, //
};
use kernel::{
    fs::File,
    prelude::*,
    sync::{
        poll::PollTable,
        Arc,
        ArcBorrow, //
    },
    uaccess::UserSliceWriter, //
};

/// Access rights of the node; a udev rule gives it to the group `csd`.
pub(crate) const MODE: u16 = 0o660;

/// What the node opens onto.
pub(crate) struct Control(pub(crate) Arc<Registry>);

impl Node for Control {
    type File = ControlFile;

    fn open(&self) -> Result<Arc<ControlFile>> {
        let file = ControlFile {
            registry: self.0.clone(),
            events: self.0.events.reader()?,
        };
        Ok(Arc::new(file, GFP_KERNEL)?)
    }
}

/// An open `/dev/csd`.
pub(crate) struct ControlFile {
    registry: Arc<Registry>,
    events: Pin<KBox<Reader>>,
}

/// Runs `f` on the structure at `user` and copies it back. What `f` made and the caller cannot be
/// told of is given to `undo`.
fn with_undo<T: Abi, R>(
    user: usize,
    f: impl FnOnce(&mut T) -> Result<R>,
    undo: impl FnOnce(R),
) -> Result<R> {
    let mut argument = Argument::<T>::read(user)?;
    let result = f(argument.get());
    let copied = argument.write_back();
    let result = result?;
    if let Err(error) = copied {
        undo(result);
        return Err(error);
    }
    Ok(result)
}

/// Runs `f` on the structure at `user` and copies it back.
pub(crate) fn with<T: Abi, R>(user: usize, f: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
    with_undo(user, f, drop)
}

impl OpenFile for ControlFile {
    fn read(&self, out: &mut UserSliceWriter, nonblock: bool) -> Result<usize> {
        self.events.read(out, nonblock)
    }

    fn poll(&self, file: &File, table: &PollTable<'_>) -> u32 {
        self.events.poll(file, table)
    }

    fn ioctl(self: ArcBorrow<'_, Self>, command: u32, user: usize) -> Result {
        let registry = &*self.registry;
        match command {
            uapi::CSD_NUMBER_INFO => with(user, |info| module_info(registry, info)),
            uapi::CSD_NUMBER_DRIVE_INFO => with(user, |info| drive::info(registry, info)),
            uapi::CSD_NUMBER_DRIVE_SET => with(user, |set| drive::set(registry, set)),
            uapi::CSD_NUMBER_DRIVE_NAMESPACE => {
                with(user, |namespace| drive::namespace(registry, namespace))
            }
            uapi::CSD_NUMBER_DRIVE_PROBE_MEMORY => {
                with(user, |probe| drive::probe_memory(registry, probe))
            }
            uapi::CSD_NUMBER_MESH_CREATE => {
                let create = |mesh: &mut uapi::csd_mesh_create| registry.create_mesh(mesh);
                with_undo(user, create, |mesh| {
                    // Fails only if somebody else has destroyed it.
                    let _ = registry.destroy(&mesh, true);
                })
                .map(drop)
            }
            uapi::CSD_NUMBER_MESH_DESTROY => with(user, |mesh| registry.destroy_mesh(mesh)),
            uapi::CSD_NUMBER_MESH_INFO => with(user, |info: &mut uapi::csd_mesh_info| {
                registry.mesh(info.mesh)?.info(info)
            }),
            uapi::CSD_NUMBER_RING_INFO => with(user, |info: &mut uapi::csd_ring_info| {
                registry.mesh(info.mesh)?.ring_info(info)
            }),
            uapi::CSD_NUMBER_RING_RESET => with(user, |reset: &mut uapi::csd_ring_reset| {
                registry.mesh(reset.mesh)?.reset(reset)
            }),
            uapi::CSD_NUMBER_MSG_CALL => with(user, |call: &mut uapi::csd_msg_call| {
                registry.mesh(call.mesh)?.call(call)
            }),
            uapi::CSD_NUMBER_MSG_RECV => with(user, |recv: &mut uapi::csd_msg_recv| {
                registry.mesh(recv.mesh)?.receive(recv)
            }),
            uapi::CSD_NUMBER_PIPELINE_START => {
                // The descriptor appears only once the caller can know its number.
                let file = with(user, |start| pipeline::start(registry, start))?;
                file.install();
                Ok(())
            }
            uapi::CSD_NUMBER_PIPELINE_PLAN => with(user, |start| pipeline::plan(registry, start)),
            uapi::CSD_NUMBER_PIPELINE_INFO => with(user, |info| pipeline::info(registry, info)),
            uapi::CSD_NUMBER_PIPELINE_CANCEL => {
                with(user, |cancel| pipeline::cancel(registry, cancel))
            }
            _ => Err(ENOTTY),
        }
    }
}

/// Carries out `CSD_IOC_INFO`.
fn module_info(registry: &Registry, info: &mut csd_info) -> Result {
    if info.reserved != 0 {
        return Err(EOPNOTSUPP);
    }
    info.abi = uapi::CSD_ABI_VERSION;
    info.drives = registry
        .slots()?
        .iter()
        .filter_map(|slot| 1u64.checked_shl(slot.drive.index()))
        .fold(0, |bits, bit| bits | bit);
    info.meshes = registry.mesh_bits();
    info.functions = u64::from(crate::proxy::FUNCTIONS.to_wire());
    info.idc_version = crate::idc::VERSION;
    Ok(())
}
