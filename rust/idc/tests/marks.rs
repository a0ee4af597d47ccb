// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Bitmaps of toggling bits against a vector of booleans.

use idc::marks::{map_bytes, used_bits, word_of, words, Marks};
use proptest::prelude::*;

const BITS: u32 = 192;

proptest! {
    /// Toggles and whole words, in any order, do to the map what they do to a list of booleans.
    #[test]
    fn a_map_is_a_list_of_booleans(steps in proptest::collection::vec((any::<bool>(), 0..BITS, any::<u64>()), 0..200)) {
        let mut marks = Marks::<3>::new();
        let mut model = vec![false; BITS as usize];
        for (whole, index, value) in steps {
            let word = index / 64;
            let before = model.clone();
            if whole {
                for bit in 0..64 {
                    model[word as usize * 64 + bit] = value >> bit & 1 == 1;
                }
                let changed = marks.set_word(word, value);
                for bit in 0..64 {
                    let at = word as usize * 64 + bit;
                    prop_assert_eq!(changed >> bit & 1 == 1, model[at] != before[at]);
                }
            } else {
                model[index as usize] = !model[index as usize];
                prop_assert_eq!(marks.toggle(index), marks.word(word));
            }
            for (index, expected) in (0..BITS).zip(&model) {
                prop_assert_eq!(marks.get(index), *expected);
            }
        }
    }
}

#[test]
fn beyond_the_end_is_nothing() {
    let mut marks = Marks::<1>::new();
    assert_eq!(marks.toggle(64), 0);
    assert_eq!(marks.set_word(1, 5), 0);
    assert!(!marks.get(64) && !marks.get(u32::MAX));
    assert_eq!(marks, Marks::new());
}

#[test]
fn differences_are_found_word_by_word() {
    let (mut sent, mut taken) = (Marks::<2>::new(), Marks::<2>::new());
    for index in [3, 64, 127] {
        sent.toggle(index);
    }
    taken.toggle(64);
    assert_eq!((sent.xor(&taken, 0), sent.xor(&taken, 1)), (8, 1 << 63));
    sent.clear();
    taken.clear();
    assert_eq!(sent.xor(&taken, 0) | sent.xor(&taken, 1), 0);
}

#[test]
fn sizes_are_whole_words() {
    let sizes = |bits| {
        (
            words(bits),
            map_bytes(bits),
            used_bits(words(bits) - 1, bits),
        )
    };
    assert_eq!(sizes(4), (1, 8, 0xf));
    assert_eq!(sizes(64), (1, 8, u64::MAX));
    assert_eq!(sizes(4096), (64, 512, u64::MAX));
    assert_eq!((word_of(63), word_of(64), used_bits(1, 64)), (0, 1, 0));
}
