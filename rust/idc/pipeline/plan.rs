// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Where stages run, and what hops the data takes.
//!
//! Owns the placement policy. Never allocates or starts anything. The policy: the first stage runs on
//! the source drive if that offers it; each later one on the next member in the order of the mesh,
//! round robin, that offers it; the last one on the sink's member if the sink is a namespace there.
//! Stages placed by hand stay where they are.

use super::super::function::{FunctionId, Functions};
use super::super::member::MemberId;
use super::{MAX_HOPS, MAX_STAGES};
use core::fmt;
use core::ops::Deref;

/// A stage: what, and where if that is decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PlanStage {
    /// The function.
    pub function: FunctionId,
    /// The member that runs it; `None`: any.
    pub member: Option<MemberId>,
}

/// What the stages stand between.
#[derive(Clone, Copy)]
pub struct PlanRequest<'a> {
    /// The drive that reads.
    pub source: MemberId,
    /// The drive that writes, if the sink is a namespace.
    pub sink: Option<MemberId>,
    /// Drives of the mesh.
    pub drives: u16,
    /// What a drive offers; none for a drive that cannot receive.
    pub functions: &'a dyn Fn(MemberId) -> Functions,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlanError {
    /// No stage.
    Empty,
    /// More than [`MAX_STAGES`] stages.
    TooMany,
    /// A member that is not a drive of this mesh.
    Member,
    /// No drive offers the function of this stage.
    NoDrive {
        /// The stage, from 0.
        stage: usize,
    },
    /// The drive chosen by hand does not offer the function of this stage.
    NotOffered {
        /// The stage, from 0.
        stage: usize,
        /// The drive chosen.
        member: MemberId,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Empty => f.write_str("a pipeline has at least one stage"),
            PlanError::TooMany => f.write_str("a pipeline has at most 8 stages"),
            PlanError::Member => f.write_str("no such drive in the mesh"),
            PlanError::NoDrive { stage } => write!(f, "no drive offers stage {stage}"),
            PlanError::NotOffered { stage, member } => {
                write!(f, "{member} does not offer stage {stage}")
            }
        }
    }
}

impl PlanRequest<'_> {
    fn is_drive(&self, member: MemberId) -> bool {
        !member.is_host() && member.get() <= self.drives
    }

    fn check(&self, stages: &[PlanStage]) -> Result<(), PlanError> {
        if stages.is_empty() {
            return Err(PlanError::Empty);
        }
        if stages.len() > MAX_STAGES {
            return Err(PlanError::TooMany);
        }
        let by_hand = stages.iter().filter_map(|stage| stage.member);
        let mut members = by_hand.chain(self.sink).chain([self.source]);
        if members.all(|member| self.is_drive(member)) {
            Ok(())
        } else {
            Err(PlanError::Member)
        }
    }

    fn offers(&self, member: MemberId, function: FunctionId) -> bool {
        (self.functions)(member).contains(function)
    }

    /// The next drive after `before`, round robin and `before` itself last, that offers it.
    fn next(&self, before: MemberId, function: FunctionId) -> Option<MemberId> {
        let behind = MemberId::all(self.drives).filter(|member| *member > before);
        let ahead = MemberId::all(self.drives).filter(|member| *member <= before);
        behind
            .chain(ahead)
            .find(|member| !member.is_host() && self.offers(*member, function))
    }
}

/// Decides where stages run that may run anywhere, and checks those placed by hand.
///
/// # Errors
/// [`PlanError`]; stages before the one that failed may have been placed.
pub fn place(request: &PlanRequest<'_>, stages: &mut [PlanStage]) -> Result<(), PlanError> {
    request.check(stages)?;
    let last = stages.len().saturating_sub(1);
    let mut before = request.source;
    for (index, stage) in stages.iter_mut().enumerate() {
        let function = stage.function;
        let preferred = if index == 0 && request.offers(before, function) {
            Some(before)
        } else if index == last {
            request.sink.filter(|sink| request.offers(*sink, function))
        } else {
            None
        };
        let member = match stage.member {
            Some(member) if !request.offers(member, function) => {
                return Err(PlanError::NotOffered {
                    stage: index,
                    member,
                })
            }
            Some(member) => member,
            None => preferred
                .or_else(|| request.next(before, function))
                .ok_or(PlanError::NoDrive { stage: index })?,
        };
        stage.member = Some(member);
        before = member;
    }
    Ok(())
}

/// Consecutive stages on one member.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PlanHop {
    /// The member.
    pub member: MemberId,
    /// Its first stage, from 0.
    pub first_stage: u16,
    /// Its stages; 0 for a source or sink hop that only passes data on.
    pub stage_count: u16,
}

/// The hops of a pipeline, in order; the first is always the source drive's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hops {
    hops: [PlanHop; MAX_HOPS],
    count: usize,
}

impl Hops {
    fn push(&mut self, member: MemberId, first_stage: u16) -> Result<(), PlanError> {
        let slot = self.hops.get_mut(self.count).ok_or(PlanError::TooMany)?;
        *slot = PlanHop {
            member,
            first_stage,
            stage_count: 0,
        };
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    fn last(&mut self) -> Option<&mut PlanHop> {
        self.hops.get_mut(self.count.checked_sub(1)?)
    }
}

impl Deref for Hops {
    type Target = [PlanHop];

    fn deref(&self) -> &[PlanHop] {
        self.hops.get(..self.count).unwrap_or_default()
    }
}

/// The hops that the data takes through placed stages.
///
/// # Errors
/// [`PlanError`]; a stage without member is [`PlanError::NoDrive`].
pub fn hops(request: &PlanRequest<'_>, stages: &[PlanStage]) -> Result<Hops, PlanError> {
    request.check(stages)?;
    let mut hops = Hops::default();
    hops.push(request.source, 0)?;
    for (stage, number) in stages.iter().zip(0_u16..) {
        let member = stage.member.ok_or(PlanError::NoDrive {
            stage: usize::from(number),
        })?;
        if hops.last().is_some_and(|hop| hop.member != member) {
            hops.push(member, number)?;
        }
        if let Some(hop) = hops.last() {
            hop.stage_count = hop.stage_count.saturating_add(1);
        }
    }
    let end = hops.last().map(|hop| hop.member);
    if let Some(sink) = request.sink.filter(|sink| Some(*sink) != end) {
        let after = u16::try_from(stages.len()).map_err(|_| PlanError::TooMany)?;
        hops.push(sink, after)?;
    }
    Ok(hops)
}
