// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The range allocator against a plain bitmap.

use idc::range::{Range, RangeAllocator, RangeError};
use proptest::prelude::*;
use zerocopy::FromZeros;

const fn range(start: u64, len: u64) -> Range {
    Range { start, len }
}

fn allocator<const N: usize>(space: Range) -> Box<RangeAllocator<N>> {
    let mut allocator = RangeAllocator::<N>::new_box_zeroed().expect("memory");
    allocator.init(space).expect("a space");
    allocator
}

#[test]
fn an_allocator_that_was_never_given_a_space_has_none() {
    let mut allocator = RangeAllocator::<4>::new_zeroed();
    assert_eq!(allocator.alloc(1, 1), Err(RangeError::NoSpace));
    assert_eq!(allocator.reserve(range(0, 1)), Err(RangeError::Outside));
    assert_eq!(allocator.free(range(0, 0)), Err(RangeError::NotAllocated));
    assert_eq!((allocator.largest(), allocator.free_bytes()), (0, 0));
    assert_eq!(allocator.gaps().count(), 0);
}

#[test]
fn a_range_is_freed_once_and_only_as_a_whole() {
    let mut allocator = allocator::<4>(range(0x1000, 0x1000));
    let taken = allocator.alloc(0x100, 0x100).unwrap();
    assert_eq!(taken, range(0x1000, 0x100));
    for foreign in [
        range(0x1000, 0x80),
        range(0x1080, 0x80),
        range(0x1000, 0x101),
        range(0x1100, 0x100),
        range(0, 0x100),
        range(u64::MAX, u64::MAX),
    ] {
        assert_eq!(allocator.free(foreign), Err(RangeError::NotAllocated));
    }
    assert_eq!(allocator.free_bytes(), 0xf00);
    assert_eq!(allocator.free(taken), Ok(()));
    assert_eq!(allocator.free(taken), Err(RangeError::NotAllocated));
    assert_eq!(allocator.free_bytes(), 0x1000);
}

#[test]
fn freed_neighbours_are_one_gap_again_in_any_order() {
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        let mut allocator = allocator::<3>(range(0, 96));
        let taken = [(); 3].map(|()| allocator.alloc(32, 1).unwrap());
        assert_eq!(allocator.largest(), 0);
        for index in order {
            allocator.free(taken[index]).unwrap();
        }
        assert_eq!(allocator.gaps().collect::<Vec<_>>(), [range(0, 96)]);
        assert_eq!(allocator.largest(), 96);
    }
}

#[test]
fn the_smallest_gap_that_suffices_is_used_and_of_two_the_lower() {
    let mut allocator = allocator::<8>(range(0, 100));
    // Gaps: 20..60 (40), 61..71 (10), 72..82 (10), 83..100 (17).
    for reserved in [range(0, 20), range(60, 1), range(71, 1), range(82, 1)] {
        allocator.reserve(reserved).unwrap();
    }
    assert_eq!(allocator.alloc(9, 1), Ok(range(61, 9)));
    assert_eq!(allocator.alloc(9, 1), Ok(range(72, 9)));
    assert_eq!(allocator.alloc(17, 1), Ok(range(83, 17)));
    assert_eq!(allocator.alloc(18, 1), Ok(range(20, 18)));
}

#[test]
fn alignment_counts_in_the_numbers_of_the_space_and_may_rule_a_gap_out() {
    let mut allocator = allocator::<8>(range(0x1008, 0x2000));
    assert_eq!(allocator.alloc(0x10, 0x1000), Ok(range(0x2000, 0x10)));
    // The space ends at 3008h, so behind the next boundary there are 8 bytes.
    assert_eq!(allocator.alloc(0x10, 0x1000), Err(RangeError::NoSpace));
    assert_eq!(allocator.alloc(8, 0x1000), Ok(range(0x3000, 8)));
    assert_eq!(allocator.alloc(1, 1 << 63), Err(RangeError::NoSpace));
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let mut allocator = allocator::<2>(range(16, 64));
    assert_eq!(allocator.alloc(0, 1), Err(RangeError::Empty));
    assert_eq!(allocator.alloc(1, 0), Err(RangeError::Alignment));
    assert_eq!(allocator.alloc(1, 3), Err(RangeError::Alignment));
    assert_eq!(allocator.alloc(65, 1), Err(RangeError::NoSpace));
    assert_eq!(allocator.alloc(u64::MAX, 1), Err(RangeError::NoSpace));
    assert_eq!(allocator.reserve(range(20, 0)), Err(RangeError::Empty));
    assert_eq!(allocator.reserve(range(15, 2)), Err(RangeError::Outside));
    assert_eq!(allocator.reserve(range(79, 2)), Err(RangeError::Outside));
    assert_eq!(
        allocator.reserve(range(20, u64::MAX)),
        Err(RangeError::Outside)
    );
    assert_eq!(allocator.init(range(1, u64::MAX)), Err(RangeError::Outside));
    assert!(allocator.is_empty());
    assert_eq!(allocator.gaps().collect::<Vec<_>>(), [range(16, 64)]);
}

#[test]
fn when_the_records_are_used_up_there_is_an_error_until_one_is_freed() {
    let mut allocator = allocator::<2>(range(0, 64));
    let first = allocator.alloc(1, 1).unwrap();
    allocator.reserve(range(63, 1)).unwrap();
    assert_eq!(allocator.alloc(1, 1), Err(RangeError::NoRecord));
    assert_eq!(allocator.reserve(range(30, 1)), Err(RangeError::NoRecord));
    allocator.free(first).unwrap();
    assert_eq!(allocator.alloc(2, 1), Ok(range(0, 2)));
}

#[test]
fn the_last_bytes_of_the_space_of_all_numbers_can_be_had() {
    let mut allocator = allocator::<2>(range(0, u64::MAX));
    assert_eq!(allocator.alloc(1, 1 << 63), Ok(range(0, 1)));
    let half = range(1 << 63, (1 << 63) - 1);
    assert_eq!(allocator.alloc(half.len, 1 << 63), Ok(half));
}

#[derive(Clone, Debug)]
enum Act {
    Alloc { len: u64, align: u64 },
    Reserve(Range),
    FreeNth(prop::sample::Index),
    Free(Range),
}

const SPACE: Range = range(40, 200);
const RECORDS: usize = 12;

fn any_range() -> impl Strategy<Value = Range> {
    (30u64..260, 0u64..40).prop_map(|(start, len)| range(start, len))
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0u64..50, 0u32..6).prop_map(|(len, log)| Act::Alloc { len, align: 1 << log }),
        1 => any_range().prop_map(Act::Reserve),
        3 => any::<prop::sample::Index>().prop_map(Act::FreeNth),
        1 => any_range().prop_map(Act::Free),
    ]
}

/// The plain model: one flag a byte, and the list of live ranges.
struct Model {
    taken: [bool; 300],
    live: Vec<Range>,
}

impl Model {
    fn is_free(&self, range: Range) -> bool {
        (range.start..range.start + range.len).all(|at| !self.taken[at as usize])
    }

    fn set(&mut self, range: Range, taken: bool) {
        for at in range.start..range.start + range.len {
            assert_ne!(self.taken[at as usize], taken, "{range:?} at {at}");
            self.taken[at as usize] = taken;
        }
    }

    fn gaps(&self) -> Vec<Range> {
        let mut gaps: Vec<Range> = Vec::new();
        for at in SPACE.start..SPACE.start + SPACE.len {
            if self.taken[at as usize] {
                continue;
            }
            match gaps.last_mut() {
                Some(gap) if gap.start + gap.len == at => gap.len += 1,
                _ => gaps.push(range(at, 1)),
            }
        }
        gaps
    }

    /// Every place where an allocation could go, with the size of its gap.
    fn places(&self, len: u64, align: u64) -> Vec<(u64, u64)> {
        let end = SPACE.start + SPACE.len;
        let gaps = self.gaps();
        (SPACE.start..end)
            .filter(|start| start % align == 0 && start + len <= end)
            .filter(|&start| self.is_free(range(start, len)))
            .map(|start| {
                let gap = gaps
                    .iter()
                    .find(|gap| (gap.start..gap.start + gap.len).contains(&start));
                (gap.unwrap().len, start)
            })
            .collect()
    }
}

proptest! {
    #[test]
    fn the_allocator_does_what_a_bitmap_does(
        acts in proptest::collection::vec(any_act(), 1..120)
    ) {
        let mut allocator = allocator::<RECORDS>(SPACE);
        let mut model = Model { taken: [false; 300], live: Vec::new() };
        for act in acts {
            let full = model.live.len() == RECORDS;
            match act {
                Act::Alloc { len, align } => {
                    // Smallest gap first, then lowest place.
                    let best = model.places(len.max(1), align).into_iter().min();
                    let expected = match best {
                        _ if len == 0 => Err(RangeError::Empty),
                        _ if full => Err(RangeError::NoRecord),
                        None => Err(RangeError::NoSpace),
                        Some((_, start)) => Ok(range(start, len)),
                    };
                    let got = allocator.alloc(len, align);
                    prop_assert_eq!(got, expected);
                    if let Ok(range) = got {
                        model.set(range, true);
                        model.live.push(range);
                    }
                }
                Act::Reserve(range) => {
                    let inside = range.start >= SPACE.start
                        && range.start + range.len <= SPACE.start + SPACE.len;
                    let expected = match () {
                        () if range.len == 0 => Err(RangeError::Empty),
                        () if !inside => Err(RangeError::Outside),
                        () if !model.is_free(range) => Err(RangeError::Overlap),
                        () if full => Err(RangeError::NoRecord),
                        () => Ok(()),
                    };
                    prop_assert_eq!(allocator.reserve(range), expected);
                    if expected.is_ok() {
                        model.set(range, true);
                        model.live.push(range);
                    }
                }
                Act::FreeNth(index) if !model.live.is_empty() => {
                    let range = model.live.swap_remove(index.index(model.live.len()));
                    model.set(range, false);
                    prop_assert_eq!(allocator.free(range), Ok(()));
                    prop_assert_eq!(allocator.free(range), Err(RangeError::NotAllocated));
                }
                Act::FreeNth(_) => (),
                Act::Free(range) => {
                    let live = model.live.iter().position(|&live| live == range);
                    let expected = live.map(|_| ()).ok_or(RangeError::NotAllocated);
                    prop_assert_eq!(allocator.free(range), expected);
                    if let Some(index) = live {
                        model.live.swap_remove(index);
                        model.set(range, false);
                    }
                }
            }
            let gaps = model.gaps();
            model.live.sort_by_key(|range| range.start);
            prop_assert_eq!(allocator.allocated().collect::<Vec<_>>(), &model.live[..]);
            prop_assert_eq!(allocator.len(), model.live.len());
            prop_assert_eq!(allocator.free_bytes(), gaps.iter().map(|gap| gap.len).sum::<u64>());
            prop_assert_eq!(allocator.largest(), gaps.iter().map(|gap| gap.len).max().unwrap_or(0));
            prop_assert_eq!(allocator.gaps().collect::<Vec<_>>(), gaps);
        }
    }
}
