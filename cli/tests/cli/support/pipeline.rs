// SPDX-License-Identifier: GPL-2.0

//! Pipelines of the device in memory: they run at once, with the functions of `idc`.

use super::device::Fake;
use csdctl::device::*;
use csdctl::sys::abi::*;
use csdctl::sys::Abi;
use idc::function::{
    scratch_len, Crypto, CryptoError, Function, FunctionId, FunctionState, Status,
};
use nix::errno::Errno;
use std::time::Duration;
use zerocopy::FromZeros;

impl Fake {
    pub(super) fn start(
        &mut self,
        request: &PipelineRequest,
    ) -> Result<(u64, FakePipeline), StartError> {
        let plain = |errno| StartError { errno, stage: None };
        if let Some(error) = self.start_error {
            return Err(error);
        }
        self.requests.push(request.clone());
        let source = self
            .drives
            .get(&request.source_drive)
            .ok_or(plain(Errno::ENXIO))?;
        let disk = &source.disks[request.source_nsid as usize - 1];
        let range = request.source_offset as usize
            ..(request.source_offset + request.source_length) as usize;
        let mut data = disk.get(range).ok_or(plain(Errno::ERANGE))?.to_vec();
        let drives = self.place(request)?;
        let mut progress = csd_pipeline_progress::new();
        progress.error_drive = CSD_MEMBER_HOST;
        progress.error_stage = u32::MAX;
        progress.bytes_total = request.source_length;
        progress.bytes_in = request.source_length;
        progress.stage_count = request.stages.len() as u32;
        progress.chunk_bytes = if request.chunk_bytes == 0 {
            65_536
        } else {
            request.chunk_bytes
        };
        progress.messages = 30;
        progress.elapsed_ns = 12_000_000;
        for (index, stage) in request.stages.iter().enumerate() {
            let (out, [first, second]) = apply(stage, &data);
            progress.host_cpu_bytes += data.len() as u64;
            // The ABI has records out before records in, and the checksum before its length; the
            // protocol has both the other way round.
            let (result, result2) = match stage.function {
                1 | 4 => (second, first),
                _ => (first, second),
            };
            progress.stages[index] = csd_stage_report {
                function: stage.function,
                drive: drives[index],
                bytes_in: data.len() as u64,
                bytes_out: out.len() as u64,
                result,
                result2,
            };
            data = out;
        }
        progress.bytes_out = data.len() as u64;
        progress.state = CSD_PIPELINE_DONE;
        if let Sink::Namespace {
            drive,
            nsid,
            offset,
            ..
        } = request.sink
        {
            let sink = self.drives.get_mut(&drive).ok_or(plain(Errno::ENXIO))?;
            let block = sink.block_bytes as usize;
            data.resize(data.len().div_ceil(block) * block, 0);
            let at = offset as usize;
            sink.disks[nsid as usize - 1][at..at + data.len()].copy_from_slice(&data);
            data.clear();
        }
        let mut error = None;
        if let Some(fault) = self.fault {
            data.truncate(data.len() / 2);
            progress.state = CSD_PIPELINE_FAILED;
            progress.error = fault.errno as u32;
            progress.status = fault.status;
            progress.error_drive = fault.drive;
            progress.error_stage = fault.stage;
            progress.error_offset = fault.offset;
            error = Some(fault.errno);
        }
        let mut info = csd_pipeline_info::new();
        info.mesh = request.mesh;
        info.pipeline = self.pipelines.last().map_or(1, |last| last.pipeline + 1);
        info.progress = progress;
        self.pipelines.push(info);
        let pipeline = FakePipeline {
            data,
            read: 0,
            progress,
            error,
            interrupt: self.interrupt,
        };
        Ok((info.pipeline, pipeline))
    }

    pub(super) fn place(&self, request: &PipelineRequest) -> Result<Vec<u32>, StartError> {
        let offers =
            |drive: u32, function: u32| self.drives[&drive].info.functions & (1 << function) != 0;
        let members: Vec<u32> = self.meshes[&request.mesh]
            .1
            .iter()
            .skip(1)
            .map(|member| member.drive)
            .collect();
        let mut drives = Vec::new();
        for (index, stage) in request.stages.iter().enumerate() {
            let error = StartError {
                errno: Errno::EOPNOTSUPP,
                stage: Some(index as u32),
            };
            let found = match stage.drive {
                CSD_DRIVE_ANY => {
                    let turn = members.iter().cycle().skip(index).take(members.len());
                    turn.copied().find(|drive| offers(*drive, stage.function))
                }
                drive => Some(drive).filter(|drive| offers(*drive, stage.function)),
            };
            drives.push(found.ok_or(error)?);
        }
        Ok(drives)
    }
}

/// The cipher that `idc` asks its host for, from a crate that has nothing to do with csd.
struct Keyed([u8; 32]);

impl Crypto for Keyed {
    fn aes256_ctr(
        &mut self,
        _: u16,
        counter: &[u8; 16],
        data: &mut [u8],
    ) -> Result<(), CryptoError> {
        use ctr::cipher::{KeyIvInit, StreamCipher};
        ctr::Ctr128BE::<aes::Aes256>::new(&self.0.into(), &(*counter).into()).apply_keystream(data);
        Ok(())
    }
}

/// Runs one stage over all of `input`.
fn apply(stage: &StageRequest, input: &[u8]) -> (Vec<u8>, [u64; 2]) {
    let mut state = FunctionState::new_zeroed();
    state.start(&stage.params).unwrap();
    assert_eq!(state.id().unwrap().to_wire(), stage.function as u16);
    let ciphers = [FunctionId::Encrypt, FunctionId::Decrypt].map(|id| u32::from(id.to_wire()));
    assert_eq!(stage.key.is_some(), ciphers.contains(&stage.function));
    let mut crypto = Keyed(stage.key.unwrap_or([0; 32]));
    let mut scratch = vec![0; scratch_len(&stage.params).unwrap()];
    let (mut out, mut rest, mut room) = (Vec::new(), input, vec![0; 4096]);
    loop {
        let step = state
            .step(&mut scratch, rest, true, &mut room, &mut crypto)
            .unwrap();
        rest = &rest[step.consumed..];
        out.extend_from_slice(&room[..step.produced]);
        if step.status == Status::Done {
            return (out, state.result().to_wire());
        }
    }
}

pub(super) struct FakePipeline {
    data: Vec<u8>,
    read: usize,
    progress: csd_pipeline_progress,
    error: Option<Errno>,
    interrupt: bool,
}

impl Pipeline for FakePipeline {
    fn wait(&mut self, _: Duration) -> Result<Wake, Errno> {
        let rest = self.data.len() - self.read;
        Ok(match (rest, self.interrupt) {
            (0, true) => Wake::Interrupted,
            (0, false) => Wake::Ended,
            _ => Wake::Readable,
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        // In pieces, as it comes from a window.
        let rest = &self.data[self.read..];
        let len = rest.len().min(buffer.len()).min(5000);
        if let (0, Some(errno)) = (len, self.error) {
            return Err(errno);
        }
        buffer[..len].copy_from_slice(&rest[..len]);
        self.read += len;
        Ok(len)
    }

    fn progress(&self) -> Result<csd_pipeline_progress, Errno> {
        Ok(self.progress)
    }
}
