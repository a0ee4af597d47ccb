// SPDX-License-Identifier: GPL-2.0

//! What a user asks of a pipeline, checked and with every choice made.
//!
//! Owns the checks of `CSD_IOC_PIPELINE_START` and `_PLAN` and the defaults. Each byte of the
//! caller's memory is read once. Never takes anything of a drive.

use crate::{
    chardev::usable,
    drive::Namespace,
    idc::{
        function::{
            options::{
                CipherParameters,
                Parameters,
                MAX_PARAMETERS_LEN, //
            },
            FunctionId,
            Functions, //
        },
        member::MemberId,
        pipeline::{
            plan::{
                self,
                Hops,
                PlanError,
                PlanHop,
                PlanRequest,
                PlanStage, //
            },
            MAX_CHUNK,
            MAX_DEADLINE_MS,
            MIN_CHUNK, //
        }, //
    },
    mesh::Mesh,
    sys::{
        crypto::{
            Cipher,
            Key,
            KEY_BYTES, //
        },
        uaccess, //
    },
    uapi::{
        self,
        csd_pipeline_start,
        csd_stage, //
    }, //
};
use kernel::prelude::*;
use zerocopy::{
    FromZeros,
    IntoBytes, //
};

/// Chunk where the caller leaves it to us; less if the source is shorter.
const DEFAULT_CHUNK: u32 = 256 * 1024;
const MIN_WINDOW: u32 = 64 * 1024;
const MAX_WINDOW: u32 = 16 * 1024 * 1024;
const DEFAULT_WINDOW: u32 = 1024 * 1024;
const PAGE: u32 = 4096;
const DEFAULT_DEADLINE_MS: u32 = 30_000;

/// An error, and the stage that it is about.
pub(super) struct Refusal {
    pub(super) error: Error,
    pub(super) stage: Option<usize>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { error, stage: None }
    }
}

fn at(stage: usize) -> impl Fn(Error) -> Refusal {
    move |error| Refusal {
        error,
        stage: Some(stage),
    }
}

/// One stage.
pub(super) struct Stage {
    pub(super) function: FunctionId,
    pub(super) member: MemberId,
    /// Its parameters as the caller encoded them, key slot 0.
    params: KVec<u8>,
    /// Its key, until it is in a key slot.
    pub(super) cipher: Option<Cipher>,
}

impl Stage {
    /// Copies the stage `raw` in.
    fn read(raw: &csd_stage) -> Result<Self> {
        let function = u16::try_from(raw.function)
            .ok()
            .and_then(FunctionId::from_wire)
            .ok_or(EOPNOTSUPP)?;
        let len = raw.params_len as usize;
        if len > MAX_PARAMETERS_LEN {
            return Err(EINVAL);
        }
        let mut params = KVec::from_elem(0u8, len, GFP_KERNEL)?;
        uaccess::read_bytes(raw.params, &mut params)?;
        let parsed = Parameters::parse(&params).map_err(|_| EINVAL)?;
        if parsed.function() != function {
            return Err(EINVAL);
        }
        let cipher = match &parsed {
            Parameters::Encrypt(cipher) | Parameters::Decrypt(cipher) => {
                if raw.key_len as usize != KEY_BYTES || cipher.key_slot != 0 {
                    return Err(EINVAL);
                }
                Some(Cipher::new(&Key::from_user(raw.key)?)?)
            }
            _ if raw.key_len != 0 => return Err(EINVAL),
            _ => None,
        };
        Ok(Self {
            function,
            member: MemberId::HOST,
            params,
            cipher,
        })
    }

    /// Its parameters with the key slot filled in, written to `to`. Returns their length.
    pub(super) fn encode(&self, key_slot: u16, to: &mut [u8]) -> Result<usize> {
        let filled = |cipher: &CipherParameters| CipherParameters {
            key_slot,
            ..*cipher
        };
        let params = match Parameters::parse(&self.params).map_err(|_| EINVAL)? {
            Parameters::Encrypt(cipher) => Parameters::Encrypt(filled(&cipher)),
            Parameters::Decrypt(cipher) => Parameters::Decrypt(filled(&cipher)),
            other => other,
        };
        params.encode(to).map_err(|_| EINVAL)
    }
}

/// A range of a drive's namespace.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) member: MemberId,
    pub(super) nsid: u32,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// A pipeline as it will run.
pub(super) struct Order {
    pub(super) source: Place,
    /// `None`: the result goes to the host.
    pub(super) sink: Option<Place>,
    pub(super) stages: KVec<Stage>,
    hops: Hops,
    pub(super) chunk_bytes: u32,
    pub(super) window_bytes: u32,
    pub(super) deadline_ms: u32,
}

impl Order {
    /// Its hops, the source drive's first.
    pub(super) fn hops(&self) -> &[PlanHop] {
        &self.hops
    }

    /// Reads and checks what the caller asks of `mesh`, and places its stages.
    pub(super) fn read(mesh: &Mesh, raw: &csd_pipeline_start) -> Result<Self, Refusal> {
        if raw.flags != 0 {
            return Err(EOPNOTSUPP.into());
        }
        let count = raw.stage_count as usize;
        if count == 0 || count > uapi::CSD_MAX_STAGES as usize {
            return Err(EINVAL.into());
        }
        let sizes = Sizes::check(raw)?;

        let mut raw_stages =
            KVec::from_elem(csd_stage::new_zeroed(), count, GFP_KERNEL).map_err(Error::from)?;
        uaccess::read_bytes(raw.stages, raw_stages.as_mut_slice().as_mut_bytes())?;
        let mut stages = KVec::with_capacity(count, GFP_KERNEL).map_err(Error::from)?;
        let mut planned = KVec::with_capacity(count, GFP_KERNEL).map_err(Error::from)?;
        for (index, raw) in raw_stages.iter().enumerate() {
            let stage = Stage::read(raw).map_err(at(index))?;
            let member = match raw.drive {
                uapi::CSD_DRIVE_ANY => None,
                uapi::CSD_MEMBER_HOST => return Err(at(index)(EOPNOTSUPP)),
                drive => Some(mesh.find(drive).map_err(at(index))?),
            };
            planned
                .push(
                    PlanStage {
                        function: stage.function,
                        member,
                    },
                    GFP_KERNEL,
                )
                .map_err(Error::from)?;
            stages.push(stage, GFP_KERNEL).map_err(Error::from)?;
        }

        let source = source(mesh, raw)?;
        let sink = sink(mesh, raw)?;
        let functions = |id: MemberId| {
            if mesh.is_here(id) {
                mesh.table.functions(id)
            } else {
                Functions::NONE
            }
        };
        let request = PlanRequest {
            source: source.member,
            sink: sink.map(|sink| sink.member),
            drives: mesh.table.shape().drives,
            functions: &functions,
        };
        plan::place(&request, &mut planned).map_err(refusal)?;
        let hops = plan::hops(&request, &planned).map_err(refusal)?;
        for (stage, planned) in stages.iter_mut().zip(planned.iter()) {
            stage.member = planned.member.ok_or(EOPNOTSUPP)?;
        }
        Ok(Self {
            chunk_bytes: sizes.chunk(source.length),
            window_bytes: sizes.window(source.length),
            deadline_ms: sizes.deadline_ms,
            source,
            sink,
            stages,
            hops,
        })
    }
}

/// Sizes and times, 0 where they are left to us.
struct Sizes {
    chunk: u32,
    window: u32,
    deadline_ms: u32,
}

impl Sizes {
    fn check(raw: &csd_pipeline_start) -> Result<Self> {
        let pages = |value: u32| value % PAGE == 0;
        let chunk = raw.chunk_bytes;
        if chunk != 0 && !(pages(chunk) && (MIN_CHUNK..=MAX_CHUNK).contains(&chunk)) {
            return Err(EINVAL);
        }
        let window = raw.window_bytes;
        if window != 0 && !(pages(window) && (MIN_WINDOW..=MAX_WINDOW).contains(&window)) {
            return Err(EINVAL);
        }
        let deadline_ms = match raw.deadline_ms {
            0 => DEFAULT_DEADLINE_MS,
            ms => ms,
        };
        if deadline_ms > MAX_DEADLINE_MS {
            return Err(EINVAL);
        }
        Ok(Self {
            chunk,
            window,
            deadline_ms,
        })
    }

    /// The chunk for a source of `length` bytes.
    fn chunk(&self, length: u64) -> u32 {
        match self.chunk {
            0 => fitting(length, MIN_CHUNK, DEFAULT_CHUNK),
            chunk => chunk,
        }
    }

    /// The result window for a source of `length` bytes: no function of ours adds more than a byte.
    fn window(&self, length: u64) -> u32 {
        match self.window {
            0 => fitting(length.saturating_add(1), MIN_WINDOW, DEFAULT_WINDOW),
            window => window,
        }
    }
}

/// Whole pages for `length` bytes, within `min..=max`.
fn fitting(length: u64, min: u32, max: u32) -> u32 {
    let pages = length.div_ceil(u64::from(PAGE));
    u32::try_from(pages.saturating_mul(u64::from(PAGE)))
        .unwrap_or(max)
        .clamp(min, max)
}

fn refusal(error: PlanError) -> Refusal {
    match error {
        PlanError::Empty | PlanError::TooMany => EINVAL.into(),
        PlanError::Member => ENODEV.into(),
        PlanError::NoDrive { stage } | PlanError::NotOffered { stage, .. } => at(stage)(EOPNOTSUPP),
    }
}

/// The namespace `nsid` (0: the first) of `drive` and the bytes that it has.
fn namespace(mesh: &Mesh, drive: u32, nsid: u32) -> Result<(MemberId, Namespace, u64)> {
    if drive == uapi::CSD_MEMBER_HOST {
        return Err(EOPNOTSUPP);
    }
    let id = mesh.find(drive)?;
    let member = mesh.member(id).ok_or(ENXIO)?;
    let namespaces = usable(&member.slot)?;
    let found = namespaces
        .iter()
        .find(|namespace| nsid == 0 || namespace.nsid == nsid)
        .copied()
        .ok_or(ENXIO)?;
    let bytes = found
        .blocks
        .checked_mul(u64::from(found.block_size))
        .ok_or(ERANGE)?;
    Ok((id, found, bytes))
}

fn source(mesh: &Mesh, raw: &csd_pipeline_start) -> Result<Place> {
    let (member, namespace, bytes) = namespace(mesh, raw.source_drive, raw.source_nsid)?;
    let end = raw
        .source_offset
        .checked_add(raw.source_length)
        .ok_or(ERANGE)?;
    if end > bytes {
        return Err(ERANGE);
    }
    Ok(Place {
        member,
        nsid: namespace.nsid,
        offset: raw.source_offset,
        length: raw.source_length,
    })
}

fn sink(mesh: &Mesh, raw: &csd_pipeline_start) -> Result<Option<Place>> {
    match raw.sink {
        uapi::CSD_SINK_FD => return Ok(None),
        uapi::CSD_SINK_NAMESPACE => {}
        _ => return Err(EOPNOTSUPP),
    }
    let (member, namespace, bytes) = namespace(mesh, raw.sink_drive, raw.sink_nsid)?;
    let beyond = raw.sink_offset.checked_rem(u64::from(namespace.block_size));
    if beyond != Some(0) {
        return Err(EINVAL);
    }
    let room = bytes.checked_sub(raw.sink_offset).ok_or(ERANGE)?;
    let length = match raw.sink_length {
        0 => room,
        length if length > room => return Err(ERANGE),
        length => length,
    };
    if length == 0 {
        return Err(ERANGE);
    }
    Ok(Some(Place {
        member,
        nsid: namespace.nsid,
        offset: raw.sink_offset,
        length,
    }))
}
