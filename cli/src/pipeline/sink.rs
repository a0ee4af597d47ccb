// SPDX-License-Identifier: GPL-2.0

//! A drive as the place that a result is written to: what must hold before that is allowed.
//!
//! Owns the refusals. Nothing is written before all of them are passed, and `--force` passes none
//! of those that find a signature.

use super::options::Stages;
use super::report::not_started;
use super::{signature, stream};
use crate::device::{Device, PipelineRequest, Sink, StageRequest};
use crate::failure::{Failure, Outcome};
use crate::names::{Drive, Drives, Mesh};
use crate::sys::abi::{csd_drive_namespace, CSD_DRIVE_ANY};
use crate::units::{count, size};
use idc::function::{FunctionId, Parameters};
use nix::errno::Errno;

/// The namespace of `drive` with this id; without an id its first.
///
/// # Errors
/// There is none.
pub fn namespace(
    device: &dyn Device,
    drive: &Drive,
    nsid: Option<u32>,
) -> Outcome<csd_drive_namespace> {
    let mut known = Vec::new();
    for index in 0..drive.info.namespaces {
        match device.drive_namespace(drive.info.drive, index) {
            Ok(found) if nsid.is_none_or(|nsid| nsid == found.nsid) => return Ok(found),
            Ok(found) => known.push(found.nsid.to_string()),
            Err(Errno::ENXIO) => break,
            Err(errno) => return Err(Failure::errno(drive.name(), errno).drive(drive.name())),
        }
    }
    let failure = match nsid {
        Some(nsid) if !known.is_empty() => Failure::new(format!(
            "{} has no namespace {nsid}; it has {}",
            drive.name(),
            known.join(", ")
        )),
        _ => Failure::new(format!("{} has no usable namespace", drive.name())),
    };
    Err(failure
        .drive(drive.name())
        .remedy(format!("csdctl drive show {}", drive.name())))
}

/// Bytes of a namespace.
pub fn bytes(namespace: &csd_drive_namespace) -> u64 {
    namespace
        .blocks
        .saturating_mul(namespace.block_bytes.into())
}

/// The place on `drive` as a sink, if it may be written to.
///
/// # Errors
/// `force` is not given, the place is beyond the namespace or not at a block's start, or there is a
/// signature.
pub fn check(
    device: &dyn Device,
    drives: &Drives,
    mesh: &Mesh,
    drive: &Drive,
    (nsid, offset): (Option<u32>, u64),
    force: bool,
) -> Outcome<Sink> {
    let name = drive.name();
    let found = namespace(device, drive, nsid)?;
    let (size_bytes, block) = (bytes(&found), u64::from(found.block_bytes));
    if block == 0 || offset % block != 0 {
        return Err(Failure::usage(format!(
            "--to {name}: {} is not a multiple of the block size {}",
            count(offset),
            count(block)
        ))
        .drive(name));
    }
    if offset >= size_bytes {
        return Err(Failure::new(format!(
            "--to {name}: {} is beyond namespace {}, which has {} bytes",
            count(offset),
            found.nsid,
            count(size_bytes)
        ))
        .drive(name.clone())
        .remedy(format!(
            "csdctl drive show {name}, for the size of its namespaces"
        )));
    }
    if !force {
        return Err(Failure::refused(format!(
            "--to {name}: what namespace {} holds from byte {} on would be overwritten",
            found.nsid,
            count(offset)
        ))
        .drive(name)
        .remedy("--force, if nobody needs it"));
    }
    let look = |from: u64, len: u64| read(device, drives, mesh, drive, found.nsid, from, len);
    let end = size_bytes.min(signature::END_LEN);
    let mut signature = signature::at_start(&look(0, size_bytes.min(signature::START_LEN))?);
    if signature.is_none() && offset != 0 {
        let len = (size_bytes - offset).min(signature::START_LEN);
        signature = signature::at_start(&look(offset, len)?);
    }
    if signature.is_none() {
        signature = signature::at_end(&look(size_bytes - end, end)?, size_bytes);
    }
    if let Some(signature) = signature {
        return Err(Failure::refused(format!(
            "--to {name}: namespace {} ({}) carries a signature: {signature}",
            found.nsid,
            size(size_bytes)
        ))
        .drive(name.clone())
        .remedy(format!(
            "csdctl drive unbind {name} and wipefs on its block device, if nobody needs what it holds"
        )));
    }
    Ok(Sink::Namespace {
        drive: drive.info.drive,
        nsid: found.nsid,
        offset,
        length: 0,
    })
}

/// Reads a few bytes of a namespace. It belongs to csd and is no block device, but a pipeline reads
/// it, and `checksum` passes on what it gets.
fn read(
    device: &dyn Device,
    drives: &Drives,
    mesh: &Mesh,
    drive: &Drive,
    nsid: u32,
    offset: u64,
    length: u64,
) -> Outcome<Vec<u8>> {
    let mut params = vec![0; Parameters::Checksum.encoded_len()];
    Parameters::Checksum
        .encode(&mut params)
        .map_err(|error| Failure::new(error.to_string()))?;
    let stages = vec![StageRequest {
        function: FunctionId::Checksum.to_wire().into(),
        drive: CSD_DRIVE_ANY,
        params,
        key: None,
    }];
    let request = PipelineRequest {
        mesh: mesh.info.mesh,
        source_drive: drive.info.drive,
        source_nsid: nsid,
        source_offset: offset,
        source_length: length,
        stages: stages.clone(),
        chunk_bytes: 0,
        window_bytes: 0,
        sink: Sink::Descriptor,
        deadline_ms: 0,
    };
    let stages = Stages {
        requests: stages,
        ivs: vec![None],
    };
    let mut found = Vec::new();
    stream::run(
        device,
        &request,
        false,
        &|error| not_started(error, &stages, drives, mesh),
        &mut |bytes| {
            found.extend_from_slice(bytes);
            Ok(())
        },
    )
    .map_err(|mut failure| {
        failure.message = format!(
            "cannot see what {} holds before it is overwritten: {}",
            drive.name(),
            failure.message
        );
        failure
    })?;
    Ok(found)
}
