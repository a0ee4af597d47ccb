// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Where rings lie, what windows allow, what a superblock remembers.

mod fabric;

use fabric::Shared;
use idc::function::{FunctionId, Functions};
use idc::member::{Location, MemberId, MemberSet};
use idc::memory::Memory;
use idc::mesh::{MeshError, MeshShape, MeshTable};
use idc::range::{Range, RangeAllocator};
use idc::ring::RingError;
use idc::superblock::{
    is_ours, next_epoch, nqn_hash, EpochsSpent, Superblock, SuperblockError, SUPERBLOCK_BYTES,
};
use idc::window::{NotGranted, Rights, Window, WindowError, WindowRef, WindowTable, MAX_WINDOWS};
use proptest::prelude::*;
use zerocopy::FromZeros;

fn member(id: u16) -> MemberId {
    MemberId::new(id).unwrap()
}

fn table(shape: &MeshShape) -> Box<MeshTable> {
    let mut table = MeshTable::new_box_zeroed().unwrap();
    table.init(shape, 5).unwrap();
    for member in MemberId::all(shape.drives) {
        let mut allocator = RangeAllocator::<8>::new_box_zeroed().unwrap();
        allocator
            .init(Range {
                start: 4096,
                len: 1 << 30,
            })
            .unwrap();
        let block = allocator.alloc(shape.block_bytes(), 4096).unwrap();
        table
            .place(member, Location::of(member, block.start))
            .unwrap();
    }
    table
}

fn shapes() -> impl Strategy<Value = MeshShape> {
    (1_u16..=32, 2_u32..=12, 6_u32..=12).prop_map(|(drives, entries, bytes)| MeshShape {
        drives,
        entries: 1 << entries,
        entry_bytes: 1 << bytes,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No two rings or cells share a byte, all lie in the blocks, and a ring costs at most its
    /// entries and 4 KiB.
    #[test]
    fn rings_and_cells_are_disjoint_and_cheap(shape in shapes()) {
        let table = table(&shape);
        let mut ranges = Vec::new();
        let mut rings = 0;
        for (from, to) in shape.rings() {
            let ring = table.ring(from, to).unwrap();
            prop_assert_eq!(ring.base.memory.get(), to.get());
            prop_assert_eq!(ring.credit.memory.get(), from.get());
            ranges.push((to.get(), ring.base.offset, ring.base.offset + ring.bytes()));
            ranges.push((from.get(), ring.credit.offset, ring.credit.offset + 64));
            rings += 1;
        }
        let d = u32::from(shape.drives);
        prop_assert_eq!((shape.peer_rings(), shape.host_rings()), (d * (d - 1), 2 * d));
        prop_assert_eq!(rings, d * (d + 1));
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            prop_assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{:?}", pair);
        }
        for &(id, start, end) in &ranges {
            let block = table.block(member(id)).unwrap();
            prop_assert!(start >= block.offset && end <= block.offset + shape.block_bytes());
        }
        let entries = u64::from(shape.entries) * u64::from(shape.entry_bytes);
        prop_assert!(shape.block_bytes() <= u64::from(shape.drives) * (entries + 4096));
    }
}

#[test]
fn impossible_meshes_are_refused() {
    let good = MeshShape {
        drives: 3,
        entries: 64,
        entry_bytes: 64,
    };
    let mut table = MeshTable::new_box_zeroed().unwrap();
    for (shape, error) in [
        (MeshShape { drives: 0, ..good }, MeshError::Drives),
        (MeshShape { drives: 33, ..good }, MeshError::Drives),
        (
            MeshShape { entries: 3, ..good },
            MeshError::Ring(RingError::Entries),
        ),
        (
            MeshShape {
                entry_bytes: 48,
                ..good
            },
            MeshError::Ring(RingError::EntryBytes),
        ),
    ] {
        assert_eq!(table.init(&shape, 1), Err(error));
    }
    assert_eq!(table.init(&good, 0), Err(MeshError::Ring(RingError::Epoch)));
    table.init(&good, 1).unwrap();
    assert_eq!(table.ring(member(1), member(2)), Err(MeshError::Placement));
    assert_eq!(table.ring(member(1), member(1)), Err(MeshError::Member));
    assert_eq!(table.ring(member(1), member(4)), Err(MeshError::Member));
    assert_eq!(
        table.place(member(4), Location::of(member(4), 0)),
        Err(MeshError::Member)
    );
    assert_eq!(
        table.place(member(1), Location::of(member(1), 64)),
        Err(MeshError::Placement)
    );
}

#[test]
fn functions_are_told_and_a_block_is_scrubbed() {
    let shape = MeshShape {
        drives: 2,
        entries: 4,
        entry_bytes: 64,
    };
    let mut table = table(&shape);
    table.set_functions(member(2), Functions::NONE.with(FunctionId::Filter));
    assert!(table.functions(member(2)).contains(FunctionId::Filter));
    assert!(!table.functions(member(1)).contains(FunctionId::Filter));
    let store = Shared::new();
    store.add(1, 16384);
    store.poke(1, 0, &[0xff; 16384]);
    table.clear(member(1), &mut store.view(1)).unwrap();
    let block = table.block(member(1)).unwrap().offset;
    assert_eq!(store.peek(1, block, 4096), [0; 4096]);
    assert_eq!(store.peek(1, block - 1, 1), [0xff]);
    assert_eq!(store.peek(1, block + 4096, 1), [0xff]);
    store
        .view(1)
        .flush(idc::member::MemoryId::of(member(1)))
        .unwrap();
}

fn window(id: u32) -> Window {
    Window {
        id,
        rights: Rights::WRITE,
        owner: member(2),
        base: Location::of(member(2), 0x10000),
        length: 0x4000,
        grantees: MemberSet::of(member(1)),
    }
}

#[test]
fn a_window_opens_only_to_its_grantees_and_only_inside() {
    let mut table = WindowTable::new_zeroed();
    table.grant(&window(7)).unwrap();
    let place = |offset| WindowRef { window: 7, offset };
    let at = table
        .resolve_owned(member(2), member(1), place(0x100), 0x3f00)
        .unwrap();
    assert_eq!(at, Location::of(member(2), 0x10100));
    let refused = [
        (member(2), member(1), place(0x101), 0x3f00),
        (member(2), member(1), place(u64::MAX), 2),
        (member(2), member(1), place(0), u64::MAX),
        (member(2), member(3), place(0), 1),
        (member(1), member(1), place(0), 1),
        (
            member(2),
            member(1),
            WindowRef {
                window: 0,
                offset: 0,
            },
            0,
        ),
        (
            member(2),
            member(1),
            WindowRef {
                window: 8,
                offset: 0,
            },
            1,
        ),
    ];
    for (owner, by, place, length) in refused {
        assert_eq!(
            table.resolve_owned(owner, by, place, length),
            Err(NotGranted)
        );
    }
    assert!(table.resolve(member(1), place(0), 1, Rights::WRITE).is_ok());
    assert_eq!(
        table.resolve(member(1), place(0), 1, Rights::READ),
        Err(NotGranted)
    );
    table.revoke(7);
    assert_eq!(
        table.resolve_owned(member(2), member(1), place(0), 1),
        Err(NotGranted)
    );
    assert!(table.is_empty());
}

#[test]
fn the_window_table_is_bounded_and_ids_are_unique() {
    let mut table = WindowTable::new_zeroed();
    for id in 1..=MAX_WINDOWS as u32 {
        table.grant(&window(id)).unwrap();
    }
    assert_eq!(table.grant(&window(1)), Ok(()));
    assert_eq!(
        table.grant(&Window {
            length: 1,
            ..window(1)
        }),
        Err(WindowError::Exists)
    );
    assert_eq!(table.grant(&window(1000)), Err(WindowError::Full));
    assert_eq!(table.grant(&window(0)), Err(WindowError::Invalid));
    assert_eq!(
        table.grant(&Window {
            length: u64::MAX,
            ..window(2000)
        }),
        Err(WindowError::Invalid)
    );
    assert_eq!(table.len(), MAX_WINDOWS);
}

/// FNV-1a's published test vectors.
#[test]
fn the_hash_of_a_name_is_fnv_1a() {
    assert_eq!(nqn_hash(b""), 0xcbf2_9ce4_8422_2325);
    assert_eq!(nqn_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
    assert_eq!(nqn_hash(b"foobar"), 0x8594_4171_f739_67e8);
}

#[test]
fn a_superblock_survives_and_damage_is_noticed() {
    let block = Superblock {
        nqn_hash: 0x0123_4567_89ab_cdef,
        last_epoch: 77,
    };
    let mut bytes = [0; SUPERBLOCK_BYTES];
    block.encode(&mut bytes);
    assert_eq!(
        &bytes[..32],
        b"CSDIDC\x01\0\x01\0\0\0\0\0\0\0\xef\xcd\xab\x89\x67\x45\x23\x01\x4d\0\0\0\0\0\0\0"
    );
    assert_eq!(Superblock::parse(&bytes), Ok(block));
    assert!(is_ours(&bytes));
    for at in 0..SUPERBLOCK_BYTES {
        let mut damaged = bytes;
        damaged[at] ^= 4;
        let error = if at < 8 {
            SuperblockError::NotOurs
        } else {
            SuperblockError::Checksum
        };
        assert_eq!(Superblock::parse(&damaged), Err(error), "byte {at}");
        assert_eq!(is_ours(&damaged), at >= 8);
    }
    assert_eq!(Superblock::parse(&bytes[..63]), Err(SuperblockError::Short));
    assert_eq!(
        Superblock::parse(&[0xff; 64]),
        Err(SuperblockError::NotOurs)
    );
}

#[test]
fn an_epoch_is_above_all_that_were() {
    assert_eq!(next_epoch([].into_iter(), 0), Ok(1));
    assert_eq!(next_epoch([3, 9, 4].into_iter(), 5), Ok(10));
    assert_eq!(next_epoch([3].into_iter(), 12), Ok(13));
    assert_eq!(next_epoch([u32::MAX].into_iter(), 0), Err(EpochsSpent));
}
