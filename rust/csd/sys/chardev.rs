// SPDX-License-Identifier: GPL-2.0

//! Character devices and files with `read`, `poll` and `ioctl`.
//!
//! The kernel crate's `MiscDevice` has no poll, no data per registration and no mode; this does the
//! same on `struct miscdevice` and `struct file_operations`. Owns the callbacks from the VFS and the
//! life of a file's private data; never knows a command. Both tables name this module as their
//! owner: while such a file is open, the module cannot be unloaded.

use core::marker::PhantomData;
use kernel::{
    bindings,
    device::Device,
    error::{
        from_result,
        to_result, //
    },
    ffi,
    fs::{
        file::{
            flags,
            FileDescriptorReservation, //
        },
        File, //
    },
    module::this_module,
    prelude::*,
    sync::{
        aref::ARef,
        poll::PollTable,
        Arc,
        ArcBorrow, //
    },
    types::{
        ForeignOwnable,
        Opaque, //
    },
    uaccess::{
        UserPtr,
        UserSlice,
        UserSliceWriter, //
    },
};

/// There is something to read.
pub(crate) const READABLE: u32 = bindings::POLLIN | bindings::POLLRDNORM;
/// Nothing more will come.
pub(crate) const HANGUP: u32 = bindings::POLLHUP;
/// It ended in an error.
pub(crate) const ERROR: u32 = bindings::POLLERR;

/// What an open file does.
pub(crate) trait OpenFile: Send + Sync + Sized + 'static {
    /// Reads into `out`; `nonblock` says not to wait (EAGAIN). Returns how many bytes were written.
    fn read(&self, out: &mut UserSliceWriter, nonblock: bool) -> Result<usize>;

    /// Registers with `table` and returns a mask of [`READABLE`], [`HANGUP`] and [`ERROR`].
    fn poll(&self, file: &File, table: &PollTable<'_>) -> u32;

    /// Carries out a command; `argument` is a user address.
    fn ioctl(self: ArcBorrow<'_, Self>, command: u32, argument: usize) -> Result;

    /// The last descriptor was closed.
    fn release(&self) {}
}

/// A device node: makes files.
pub(crate) trait Node: Send + Sync + 'static {
    /// What an open file of it is.
    type File: OpenFile;

    /// A new file.
    fn open(&self) -> Result<Arc<Self::File>>;
}

/// The file operations of files made of `T`.
struct Operations<T>(PhantomData<T>);

impl<T: OpenFile> Operations<T> {
    const COMMON: bindings::file_operations = bindings::file_operations {
        owner: this_module::<crate::LocalModule>().as_ptr(),
        read: Some(Self::read),
        poll: Some(Self::poll),
        unlocked_ioctl: Some(Self::ioctl),
        compat_ioctl: bindings::compat_ptr_ioctl,
        release: Some(Self::release),
        ..pin_init::zeroed()
    };

    /// Borrows the private data of `file`.
    ///
    /// # Safety
    ///
    /// `file` is an open file whose private data is an `Arc<T>` that stays for `'a`.
    unsafe fn data<'a>(file: *mut bindings::file) -> ArcBorrow<'a, T> {
        // SAFETY: By the contract of this function.
        unsafe { <Arc<T> as ForeignOwnable>::borrow((*file).private_data) }
    }

    /// # Safety
    ///
    /// Only called by the VFS, for files with these operations.
    unsafe extern "C" fn read(
        file: *mut bindings::file,
        buffer: *mut ffi::c_char,
        count: usize,
        _position: *mut bindings::loff_t,
    ) -> isize {
        // SAFETY: The VFS holds the file for this call, and its private data was set before it was
        // published and goes only in `release`.
        let data = unsafe { Self::data(file) };
        // SAFETY: As above; nothing of these files uses the file position.
        let nonblock = unsafe { File::from_raw_file(file) }.flags() & flags::O_NONBLOCK != 0;
        let mut out = UserSlice::new(UserPtr::from_ptr(buffer.cast()), count).writer();
        from_result(|| isize::try_from(data.read(&mut out, nonblock)?).map_err(|_| EOVERFLOW))
    }

    /// # Safety
    ///
    /// Only called by the VFS, for files with these operations.
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        wait: *mut bindings::poll_table_struct,
    ) -> bindings::__poll_t {
        // SAFETY: The VFS holds the file for this call, and its private data was set before it was
        // published and goes only in `release`.
        let data = unsafe { Self::data(file) };
        // SAFETY: The VFS passes a valid or null table for this call.
        let table = unsafe { PollTable::from_raw(wait) };
        // SAFETY: The VFS holds the file for this call.
        data.poll(unsafe { File::from_raw_file(file) }, &table)
    }

    /// # Safety
    ///
    /// Only called by the VFS, for files with these operations.
    unsafe extern "C" fn ioctl(
        file: *mut bindings::file,
        command: ffi::c_uint,
        argument: ffi::c_ulong,
    ) -> ffi::c_long {
        // SAFETY: The VFS holds the file for this call, and its private data was set before it was
        // published and goes only in `release`.
        let data = unsafe { Self::data(file) };
        match data.ioctl(command, argument) {
            Ok(()) => 0,
            Err(error) => error.to_errno() as ffi::c_long,
        }
    }

    /// # Safety
    ///
    /// Only called by the VFS, once for each file with these operations.
    unsafe extern "C" fn release(
        _inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> ffi::c_int {
        // SAFETY: The private data is the `Arc<T>` given away when the file was made; this is the
        // last use of it.
        let data = unsafe { <Arc<T> as ForeignOwnable>::from_foreign((*file).private_data) };
        data.release();
        0
    }
}

/// Operations of files without a node.
struct Anonymous<T>(PhantomData<T>);

impl<T: OpenFile> Anonymous<T> {
    const TABLE: bindings::file_operations = Operations::<T>::COMMON;
    const REFERENCE: &'static bindings::file_operations = &Self::TABLE;
}

/// A registered misc device.
///
/// # Invariants
///
/// `misc` is registered from the end of `register` until `drop`.
#[pin_data(PinnedDrop)]
#[repr(C)]
pub(crate) struct NodeRegistration<N: Node> {
    // First, so that a pointer to it is a pointer to the whole.
    #[pin]
    misc: Opaque<bindings::miscdevice>,
    node: Arc<N>,
}

// SAFETY: A misc device may be deregistered by any thread, and `N` is `Send + Sync`.
unsafe impl<N: Node> Send for NodeRegistration<N> {}
// SAFETY: `&self` gives out only `node`, which is `Sync`, and the device, which is too.
unsafe impl<N: Node> Sync for NodeRegistration<N> {}

impl<N: Node> NodeRegistration<N> {
    const TABLE: bindings::file_operations = bindings::file_operations {
        open: Some(Self::open),
        ..Operations::<N::File>::COMMON
    };
    const REFERENCE: &'static bindings::file_operations = &Self::TABLE;

    /// Registers `/dev/name` with the access rights `mode`.
    pub(crate) fn register(
        name: &'static CStr,
        mode: u16,
        node: Arc<N>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // The node is there before anybody can open the device.
            node,
            misc <- Opaque::try_ffi_init(move |slot: *mut bindings::miscdevice| {
                let mut misc: bindings::miscdevice = pin_init::zeroed();
                misc.minor = bindings::MISC_DYNAMIC_MINOR as ffi::c_int;
                misc.name = kernel::str::as_char_ptr_in_const_context(name);
                misc.fops = Self::REFERENCE;
                misc.mode = mode;
                // SAFETY: The initializer may write to the slot.
                unsafe { slot.write(misc) };
                // SAFETY: The slot is pinned and is deregistered before its memory goes.
                to_result(unsafe { bindings::misc_register(slot) })
            }),
        })
    }

    /// The device behind the node, for logs and uevents.
    pub(crate) fn device(&self) -> ARef<Device> {
        // SAFETY: By the invariant the device is registered, so `this_device` is valid.
        let device: &Device = unsafe { Device::from_raw((*self.misc.get()).this_device) };
        device.into()
    }

    /// # Safety
    ///
    /// Only called by the misc driver, which has put its `miscdevice` into the private data.
    unsafe extern "C" fn open(
        inode: *mut bindings::inode,
        file: *mut bindings::file,
    ) -> ffi::c_int {
        // SAFETY: By the contract of this function; the misc driver holds its lock, so the
        // registration cannot go away now.
        let this = unsafe { (*file).private_data }.cast::<Self>();
        // SAFETY: `misc` is the first member of a `repr(C)` structure, so this is its address.
        let node = unsafe { &*this }.node.clone();
        from_result(|| {
            // SAFETY: The VFS gives valid pointers; this call cannot fail.
            unsafe { bindings::stream_open(inode, file) };
            let data = node.open()?;
            // SAFETY: The file is ours; `release` takes this reference back.
            unsafe { (*file).private_data = data.into_foreign() };
            Ok(0)
        })
    }
}

#[pinned_drop]
impl<N: Node> PinnedDrop for NodeRegistration<N> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the invariant it is registered.
        unsafe { bindings::misc_deregister(self.misc.get()) };
    }
}

extern "C" {
    /// `include/linux/anon_inodes.h`; the kernel crate has no binding of it. The operations are a
    /// `struct file_operations`, the result is a `struct file`.
    fn anon_inode_getfile(
        name: *const ffi::c_char,
        fops: *const ffi::c_void,
        data: *mut ffi::c_void,
        flags: ffi::c_int,
    ) -> *mut ffi::c_void;
}

/// A file that has a descriptor number but is not yet in the descriptor table.
pub(crate) struct NewFile {
    reservation: FileDescriptorReservation,
    file: ARef<File>,
}

impl NewFile {
    /// Makes a read-only, close-on-exec file out of `data`; `name` is what `/proc/PID/fd` shows.
    ///
    /// Dropping the result releases the file as closing it would.
    ///
    /// # Errors
    ///
    /// - EMFILE, ENFILE or ENOMEM as for any descriptor.
    pub(crate) fn new<T: OpenFile>(name: &'static CStr, data: Arc<T>) -> Result<Self> {
        let reservation = FileDescriptorReservation::get_unused_fd_flags(flags::O_CLOEXEC)?;
        let raw = data.into_foreign();
        // SAFETY: Name and table are static; on success the file owns `raw`, which `release` takes
        // back.
        let file = unsafe {
            anon_inode_getfile(
                name.as_char_ptr(),
                core::ptr::from_ref(Anonymous::<T>::REFERENCE).cast(),
                raw,
                (flags::O_RDONLY | flags::O_CLOEXEC) as ffi::c_int,
            )
        };
        let file = match kernel::error::from_err_ptr(file) {
            Ok(file) => file,
            Err(error) => {
                // SAFETY: No file was made, so the reference is still ours.
                drop(unsafe { <Arc<T> as ForeignOwnable>::from_foreign(raw) });
                return Err(error);
            }
        };
        let file = core::ptr::NonNull::new(file.cast::<File>()).ok_or(ENOMEM)?;
        // SAFETY: The new file's one reference is ours to own, and nobody else uses its position.
        let file = unsafe { ARef::from_raw(file) };
        Ok(Self { reservation, file })
    }

    /// The number it will have.
    pub(crate) fn number(&self) -> i32 {
        self.reservation.reserved_fd() as i32
    }

    /// Puts it into the caller's descriptor table. Cannot fail.
    pub(crate) fn install(self) {
        self.reservation.fd_install(self.file);
    }
}
