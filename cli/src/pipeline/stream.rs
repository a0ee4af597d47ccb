// SPDX-License-Identifier: GPL-2.0

//! A running pipeline, until its end: its result, its progress, its cancellation.
//!
//! Owns the loop that reads the descriptor and the progress bar. Where the bytes go is the
//! caller's business.

use super::report::{failure, path};
use crate::device::{Device, Pipeline, PipelineRequest, StartError, Wake};
use crate::failure::{Exit, Failure, Outcome};
use crate::sys::abi::{csd_pipeline_progress, CSD_PIPELINE_DONE};
use crate::units::{rate, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::errno::Errno;
use std::time::{Duration, Instant};

/// How often progress is asked for.
const TICK: Duration = Duration::from_millis(100);

/// How long a pipeline runs before a bar is worth the while.
const BAR_AFTER: Duration = Duration::from_millis(500);

/// Bytes read at a time.
const READ_LEN: usize = 256 << 10;

/// The default deadline, as `uapi/csd.h` gives it.
const DEFAULT_DEADLINE_MS: u32 = 30_000;

/// Runs `request` to its end and hands the result to `data` as it comes. Returns its number and its
/// last progress report.
///
/// # Errors
/// It cannot be started (`not_started` words that), it fails, it is interrupted, or `data` fails; it is
/// cancelled then.
pub fn run(
    device: &dyn Device,
    request: &PipelineRequest,
    bar: bool,
    not_started: &dyn Fn(StartError) -> Failure,
    data: &mut dyn FnMut(&[u8]) -> Outcome,
) -> Outcome<(u64, csd_pipeline_progress)> {
    let (number, mut pipeline) = device.pipeline_start(request).map_err(not_started)?;
    let mut bar = Bar::new(bar);
    let end = drain(&mut *pipeline, &mut bar, data);
    bar.clear();
    let deadline = match request.deadline_ms {
        0 => DEFAULT_DEADLINE_MS,
        given => given,
    };
    let deadline = crate::units::time(u64::from(deadline) * 1_000_000);
    let errno = match end? {
        End::Interrupted => {
            // Closing the descriptor, which follows, would do; this makes the reason plain.
            let _ = device.pipeline_cancel(number);
            return Err(Failure::new("cancelled").exit(Exit::Interrupted));
        }
        End::Complete => None,
        End::Error(errno) => Some(errno),
    };
    let progress = pipeline
        .progress()
        .map_err(|errno| Failure::errno(format!("pipeline {number}"), errno))?;
    if errno.is_some() || progress.state != CSD_PIPELINE_DONE {
        return Err(failure(number, &progress, errno, &deadline));
    }
    Ok((number, progress))
}

enum End {
    Complete,
    Error(Errno),
    Interrupted,
}

fn drain(
    pipeline: &mut dyn Pipeline,
    bar: &mut Bar,
    data: &mut dyn FnMut(&[u8]) -> Outcome,
) -> Outcome<End> {
    let mut buffer = vec![0; READ_LEN];
    loop {
        match pipeline.wait(TICK) {
            Ok(Wake::Interrupted) => return Ok(End::Interrupted),
            Ok(Wake::Readable | Wake::Ended) => match pipeline.read(&mut buffer) {
                Ok(0) => return Ok(End::Complete),
                Ok(len) => data(&buffer[..len])?,
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(errno) => return Ok(End::Error(errno)),
            },
            Ok(Wake::Timeout) | Err(Errno::EINTR) => {}
            Err(errno) => return Ok(End::Error(errno)),
        }
        bar.tick(pipeline);
    }
}

/// A progress bar on standard error, once it is worth the while.
struct Bar {
    wanted: bool,
    started: Instant,
    last: Instant,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(wanted: bool) -> Self {
        let now = Instant::now();
        Self {
            wanted,
            started: now,
            last: now,
            bar: None,
        }
    }

    fn tick(&mut self, pipeline: &dyn Pipeline) {
        if !self.wanted || self.started.elapsed() < BAR_AFTER || self.last.elapsed() < TICK {
            return;
        }
        self.last = Instant::now();
        let Ok(progress) = pipeline.progress() else {
            return;
        };
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(progress.bytes_total), target);
            // The template is right, and without it there would be a plainer bar.
            if let Ok(style) = ProgressStyle::with_template("{bar:28} {percent:>3} %  {wide_msg}") {
                bar.set_style(style.progress_chars("█░"));
            }
            bar
        });
        bar.set_message(format!(
            "{} of {}  {}  {}",
            size(progress.bytes_in),
            size(progress.bytes_total),
            rate(progress.bytes_in, progress.elapsed_ns),
            path(&progress)
        ));
        bar.set_position(progress.bytes_in);
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
