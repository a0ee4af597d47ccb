// SPDX-License-Identifier: GPL-2.0

//! The start of a pipeline.
//!
//! Owns the order of its steps: check, place, take memory, make the descriptor and the file, grant,
//! set keys, hand the one command to the first drive. Whatever fails, all of it goes back.

use super::{
    arguments::{
        Order,
        Refusal, //
    },
    error_of,
    reader::PipelineFile,
    resources::{
        Places,
        Resources, //
    },
    Phase,
    Pipeline,
    StageInfo,
    State, //
};
use crate::{
    idc::function::options::MAX_PARAMETERS_LEN,
    idc::{
        member::MemberSet,
        pipeline::{
            descriptor::{
                Builder,
                HopSpec,
                PipelineSpec,
                Source, //
            },
            MAX_DESCRIPTOR, //
        },
        status::{
            Failure,
            Status, //
        }, //
    },
    mesh::{
        registry::Registry,
        Mesh, //
    },
    sys::{
        boxes::zeroed_box,
        chardev::NewFile,
        time::now_ns,
        uaccess, //
    },
    uapi::{
        csd_pipeline_start,
        csd_stage, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    static_lock_class,
    sync::{
        atomic::Atomic,
        poll::PollCondVarBox,
        Arc, //
    }, //
};

/// What [`csd_pipeline_start`]'s `error_stage` says when no stage is to blame.
const NO_STAGE: u32 = u32::MAX;

impl Refusal {
    /// Tells the caller which stage it is about.
    fn report(self, raw: &mut csd_pipeline_start) -> Error {
        raw.error_stage = self
            .stage
            .and_then(|stage| u32::try_from(stage).ok())
            .unwrap_or(NO_STAGE);
        self.error
    }
}

/// Carries out `CSD_IOC_PIPELINE_PLAN`.
///
/// # Errors
///
/// - As `uapi/csd.h` says.
pub(crate) fn plan(registry: &Registry, raw: &mut csd_pipeline_start) -> Result {
    raw.error_stage = NO_STAGE;
    raw.fd = -1;
    let mesh = registry.mesh(raw.mesh)?;
    let order = Order::read(&mesh, raw).map_err(|refusal| refusal.report(raw))?;
    tell(&mesh, &order, raw);
    let drive = ::core::mem::offset_of!(csd_stage, drive) as u64;
    for (index, stage) in order.stages.iter().enumerate() {
        let at = (index as u64)
            .checked_mul(size_of::<csd_stage>() as u64)
            .and_then(|offset| offset.checked_add(drive))
            .and_then(|offset| raw.stages.checked_add(offset))
            .ok_or(EFAULT)?;
        uaccess::write_bytes(at, &mesh.drive_of(stage.member).to_ne_bytes())?;
    }
    Ok(())
}

/// Fills in what was chosen.
fn tell(mesh: &Mesh, order: &Order, raw: &mut csd_pipeline_start) {
    raw.chunk_bytes = order.chunk_bytes;
    raw.window_bytes = order.window_bytes;
    raw.source_nsid = order.source.nsid;
    raw.deadline_ms = order.deadline_ms;
    if let Some(sink) = order.sink {
        raw.sink_drive = mesh.drive_of(sink.member);
        raw.sink_nsid = sink.nsid;
    }
}

/// Carries out `CSD_IOC_PIPELINE_START`; the file is to be installed once the caller has its number.
///
/// # Errors
///
/// - As `uapi/csd.h` says.
pub(crate) fn start(registry: &Registry, raw: &mut csd_pipeline_start) -> Result<NewFile> {
    raw.error_stage = NO_STAGE;
    raw.fd = -1;
    let mesh = registry.mesh(raw.mesh)?;
    let mut order = Order::read(&mesh, raw).map_err(|refusal| refusal.report(raw))?;
    let (pipeline, places) = prepare(registry, &mesh, &mut order)?;

    // From here on the pipeline is in the mesh's book and is ended before it is given up.
    let file = PipelineFile::new(&pipeline, &mesh)
        .and_then(|file| NewFile::new(c"[csd-pipeline]", file))
        .and_then(|file| {
            registry.history.enter(pipeline.clone())?;
            Ok(file)
        });
    let launched = file.map_err(Refusal::from).and_then(|file| {
        launch(&mesh, &pipeline, &order, &places)?;
        Ok(file)
    });
    pipeline.state.lock().launching = false;
    match launched {
        Ok(file) => {
            raw.fd = file.number();
            raw.pipeline = pipeline.number;
            raw.chunk_bytes = pipeline.chunk_bytes;
            Ok(file)
        }
        Err(refusal) => {
            registry.history.withdraw(&pipeline);
            pipeline.never_ran();
            pipeline.abort(&mesh, Status::CANCELLED);
            mesh.reap();
            Err(refusal.report(raw))
        }
    }
}

/// Takes what the pipeline needs and enters it into the mesh's book.
fn prepare(
    registry: &Registry,
    mesh: &Arc<Mesh>,
    order: &mut Order,
) -> Result<(Arc<Pipeline>, Places)> {
    let mut stages = KVec::with_capacity(order.stages.len(), GFP_KERNEL)?;
    for stage in order.stages.iter() {
        stages.push(
            StageInfo {
                function: stage.function,
                drive: mesh.drive_of(stage.member),
            },
            GFP_KERNEL,
        )?;
    }
    let mut members = MemberSet::NONE;
    let mut drives = KVec::new();
    for hop in order.hops() {
        members = members.with(hop.member);
        drives.push((hop.member, mesh.drive_of(hop.member)), GFP_KERNEL)?;
    }
    let last = order.hops().last().ok_or(EINVAL)?.member;
    let kept = zeroed_box()?;
    let number = registry.history.number();
    let stream = stream_of(number);
    let touched = Arc::new(Atomic::new(0), GFP_KERNEL)?;
    let changed = PollCondVarBox::new(c"csd_pipeline", static_lock_class!())?;

    let taken = Resources::take(mesh, order)?;
    let pipeline = Arc::pin_init(
        pin_init!(Pipeline {
            number,
            stream,
            mesh: mesh.number,
            first: order.source.member,
            last,
            members,
            source_length: order.source.length,
            chunk_bytes: order.chunk_bytes,
            stages,
            drives,
            touched,
            started_ns: now_ns(),
            state <- new_mutex!(State {
                phase: Phase::Running,
                launching: true,
                failure: Failure::default(),
                ended_ns: 0,
                resources: Some(taken.resources),
                result: taken.result,
                produced: None,
                consumed: 0,
                reading: false,
                open: true,
                abandoned: false,
                aborting: None,
                last: Some(kept),
            }, "csd_pipeline"),
            changed,
        }),
        GFP_KERNEL,
    )?;
    if let Err(error) = mesh.book.enter(pipeline.clone()) {
        pipeline.never_ran();
        pipeline.state.lock().launching = false;
        pipeline.release(mesh);
        return Err(error);
    }
    Ok((pipeline, taken.places))
}

/// A pipeline's number in messages; 0 is none there.
fn stream_of(number: u64) -> u32 {
    (number as u32).max(1)
}

/// Grants the windows and hands the command to the first drive.
fn launch(mesh: &Mesh, pipeline: &Pipeline, order: &Order, places: &Places) -> Result<(), Refusal> {
    let mut descriptor = KVec::from_elem(0u8, MAX_DESCRIPTOR, GFP_KERNEL).map_err(Error::from)?;
    let len = describe(pipeline, order, places, &mut descriptor)?;
    // While this launches, nobody else takes them.
    let resources = pipeline.state.lock().resources.clone().ok_or(ECANCELED)?;
    resources.grant(mesh, &pipeline.touched)?;
    if !pipeline.is_running() {
        return Err(ENODEV.into());
    }
    let descriptor = descriptor.get(..len).ok_or(EINVAL)?;

    let first = mesh
        .member(pipeline.first)
        .filter(|member| !member.is_lost())
        .ok_or(ENODEV)?;
    first
        .proxy
        .turn(mesh, |firmware, hands| {
            firmware.execute(pipeline.stream, descriptor, now_ns(), hands)
        })
        .map_err(|failure| refused(&failure, order.stages.len()))?;
    first.proxy.kick();
    // It may have been ended before the drives knew of it.
    if !pipeline.is_running() {
        pipeline.abort(mesh, Status::CANCELLED);
    }
    Ok(())
}

/// What a first drive that refused the command tells the caller.
fn refused(failure: &Failure, stages: usize) -> Refusal {
    let stage = usize::from(failure.stage.0);
    Refusal {
        error: error_of(failure.status),
        stage: (stage < stages).then_some(stage),
    }
}

/// Writes the descriptor.
fn describe(
    pipeline: &Pipeline,
    order: &Order,
    places: &Places,
    to: &mut [u8],
) -> Result<usize, Refusal> {
    let spec = PipelineSpec {
        stream: pipeline.stream,
        chunk_bytes: order.chunk_bytes,
        deadline_ms: order.deadline_ms,
        source: Source {
            nsid: order.source.nsid,
            offset: order.source.offset,
            length: order.source.length,
        },
        sink: places.sink,
        report: places.report,
    };
    let invalid = |_| Refusal::from(EINVAL);
    let mut builder = Builder::new(to, &spec).map_err(invalid)?;
    for (hop, input) in order.hops().iter().zip(places.inputs.iter()) {
        builder
            .hop(&HopSpec {
                member: hop.member,
                stage_count: hop.stage_count,
                buffers: places.buffers,
                input: *input,
            })
            .map_err(invalid)?;
    }
    let mut params = KVec::from_elem(0u8, MAX_PARAMETERS_LEN, GFP_KERNEL).map_err(Error::from)?;
    let stages = order.stages.iter().zip(places.key_slots.iter());
    for (index, (stage, key_slot)) in stages.enumerate() {
        let about = |error| Refusal {
            error,
            stage: Some(index),
        };
        let len = stage.encode(*key_slot, &mut params).map_err(about)?;
        let params = params.get(..len).ok_or(EINVAL)?;
        builder
            .stage(stage.function, params)
            .map_err(|_| about(EINVAL))?;
    }
    builder.finish().map_err(invalid)
}
