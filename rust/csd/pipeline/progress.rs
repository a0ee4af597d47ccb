// SPDX-License-Identifier: GPL-2.0

//! Progress: the drives' reports in host memory, as the ABI shows them.
//!
//! Never trusts a report further than to show it.

use super::{
    resources::Resources,
    Phase,
    Pipeline,
    State, //
};
use crate::{
    idc::{
        function::Outcome,
        pipeline::report::{
            self,
            Report, //
        },
        status::StageId, //
    },
    sys::time::now_ns,
    uapi::{
        self,
        csd_pipeline_progress, //
    }, //
};
use kernel::sync::atomic::Relaxed;
use zerocopy::FromZeros;

impl Pipeline {
    /// Fills `to` in, apart from its size.
    pub(super) fn progress(&self, to: &mut csd_pipeline_progress) {
        let state = self.state.lock();
        self.fill(&state, to);
    }

    /// The same from the state at hand.
    pub(super) fn fill(&self, state: &State, to: &mut csd_pipeline_progress) {
        let size = to.size;
        match (&state.resources, &state.last) {
            (Some(resources), _) => {
                to.zero();
                self.fill_reports(resources, to);
            }
            (None, Some(last)) => *to = **last,
            (None, None) => to.zero(),
        }
        to.size = size;
        to.state = state.phase.to_abi();
        to.stage_count = self.stages.len() as u32;
        to.chunk_bytes = self.chunk_bytes;
        to.bytes_total = self.source_length;
        to.host_cpu_bytes = self.touched.load(Relaxed);
        let until = match state.phase {
            Phase::Running => now_ns(),
            _ => state.ended_ns,
        };
        to.elapsed_ns = until.saturating_sub(self.started_ns);

        let failure = &state.failure;
        to.status = u32::from(failure.status.to_wire());
        to.error = u32::from(failure.status.errno());
        to.error_offset = failure.offset;
        to.error_drive = uapi::CSD_MEMBER_HOST;
        to.error_stage = u32::MAX;
        if !failure.status.is_ok() {
            to.error_drive = self.drive_of(failure.member);
            if ![StageId::SOURCE, StageId::SINK, StageId::NONE].contains(&failure.stage) {
                to.error_stage = u32::from(failure.stage.0);
            }
        }
    }

    fn fill_reports(&self, resources: &Resources, to: &mut csd_pipeline_progress) {
        for (info, place) in self.stages.iter().zip(to.stages.iter_mut()) {
            place.function = u32::from(info.function.to_wire());
            place.drive = info.drive;
        }
        let stages = self.stages.len();
        for slot in 0..report::slots(stages) {
            let Some(report) = resources.report(slot) else {
                continue;
            };
            to.messages = to.messages.wrapping_add(u64::from(report.messages));
            if slot == report::SOURCE_SLOT {
                to.bytes_in = report.bytes_out;
            } else if slot == report::sink_slot(stages) {
                to.bytes_out = report.bytes_out;
            } else if let Some(place) = to.stages.get_mut(slot.wrapping_sub(report::stage_slot(0)))
            {
                place.bytes_in = report.bytes_in;
                place.bytes_out = report.bytes_out;
                [place.result, place.result2] = show(&report);
            }
        }
    }
}

/// The two numbers that the ABI promises for a function.
fn show(report: &Report) -> [u64; 2] {
    match report.outcome() {
        Outcome::None => [0, 0],
        Outcome::Filter {
            records_in,
            records_out,
        } => [records_out, records_in],
        Outcome::Cipher { bytes } => [bytes, 0],
        Outcome::Checksum { crc32c, bytes } => [u64::from(crc32c), bytes],
    }
}
