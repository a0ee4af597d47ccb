// SPDX-License-Identifier: GPL-2.0

//! All pipelines that run, and the last few that ended.
//!
//! Owns their numbers. What it keeps of an ended pipeline holds no memory of any drive.

use super::Pipeline;
use crate::{
    mesh::registry::Registry,
    uapi::{
        csd_pipeline_cancel,
        csd_pipeline_info, //
    }, //
};
use kernel::{
    error::code::EALREADY,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// Ended pipelines that are remembered.
const KEPT: usize = 16;

struct List {
    /// In the order of their numbers.
    pipelines: KVec<Arc<Pipeline>>,
    last: u64,
}

/// All pipelines.
#[pin_data]
pub(crate) struct History {
    #[pin]
    list: Mutex<List>,
}

impl History {
    /// No pipeline yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(List { pipelines: KVec::new(), last: 0 }, "csd_history"),
        })
    }

    /// A number for a new pipeline.
    pub(super) fn number(&self) -> u64 {
        let mut list = self.list.lock();
        list.last = list.last.wrapping_add(1);
        list.last
    }

    /// Enters a pipeline and forgets those that ended long ago.
    ///
    /// # Errors
    ///
    /// - ENOMEM.
    pub(super) fn enter(&self, pipeline: Arc<Pipeline>) -> Result {
        let mut list = self.list.lock();
        list.pipelines.reserve(1, GFP_KERNEL)?;
        // Two that start at once may come in the wrong order.
        let before = list
            .pipelines
            .iter()
            .take_while(|other| other.number < pipeline.number)
            .count();
        list.pipelines
            .insert_within_capacity(before, pipeline)
            .map_err(|_| ENOMEM)?;
        let ended = list
            .pipelines
            .iter()
            .filter(|pipeline| !pipeline.is_running())
            .count();
        let mut surplus = ended.saturating_sub(KEPT);
        list.pipelines.retain(|pipeline| {
            let forget = surplus > 0 && !pipeline.is_running();
            if forget {
                surplus = surplus.saturating_sub(1);
            }
            !forget
        });
        Ok(())
    }

    /// Takes a pipeline out that was never started.
    pub(super) fn withdraw(&self, pipeline: &Arc<Pipeline>) {
        self.list
            .lock()
            .pipelines
            .retain(|other| !Arc::ptr_eq(other, pipeline));
    }

    /// The first pipeline with a number above `after`.
    fn after(&self, after: u64) -> Option<Arc<Pipeline>> {
        let list = self.list.lock();
        list.pipelines
            .iter()
            .find(|pipeline| pipeline.number > after)
            .cloned()
    }
}

/// Carries out `CSD_IOC_PIPELINE_INFO`.
///
/// # Errors
///
/// - As `uapi/csd.h` says.
pub(crate) fn info(registry: &Registry, info: &mut csd_pipeline_info) -> Result {
    let pipeline = registry.history.after(info.after).ok_or(ENXIO)?;
    info.mesh = pipeline.mesh;
    info.pipeline = pipeline.number;
    pipeline.progress(&mut info.progress);
    info.progress.size = size_of_val(&info.progress) as u32;
    Ok(())
}

/// Carries out `CSD_IOC_PIPELINE_CANCEL`.
///
/// # Errors
///
/// - As `uapi/csd.h` says.
pub(crate) fn cancel(registry: &Registry, cancel: &csd_pipeline_cancel) -> Result {
    if cancel.reserved != 0 {
        return Err(EOPNOTSUPP);
    }
    let wanted = cancel.pipeline.checked_sub(1).ok_or(ENXIO)?;
    let pipeline = registry
        .history
        .after(wanted)
        .filter(|pipeline| pipeline.number == cancel.pipeline)
        .ok_or(ENXIO)?;
    if !pipeline.is_running() {
        return Err(EALREADY);
    }
    let mesh = registry.mesh(pipeline.mesh)?;
    pipeline.cancel(&mesh);
    Ok(())
}
