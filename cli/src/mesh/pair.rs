// SPDX-License-Identifier: GPL-2.0

//! Two members and how their buffer is to differ from those of the mesh: `--pair`.
//!
//! Owns the syntax, and the way from `FROM:TO` to two members.

use super::choices::{entries, entry_size, place, Form, Place, Publish, FLAGS};
use crate::failure::{Failure, Outcome};
use crate::names::Drives;
use crate::sys::abi::*;
use clap::ValueEnum;

/// How one ordered pair is to differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PairChoice {
    /// As it was written; an NQN or a PCI address may have colons too.
    pair: String,
    place: Option<Place>,
    publish: Option<Publish>,
    entries: Option<u32>,
    entry_size: Option<u32>,
    form: Option<Form>,
    flags: Option<u32>,
}

impl PairChoice {
    /// Reads what `--pair` says.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let pair = parts.next().unwrap_or_default();
        if !pair.contains(':') {
            return Err("it begins with FROM:TO".into());
        }
        let mut choice = Self {
            pair: pair.into(),
            place: None,
            publish: None,
            entries: None,
            entry_size: None,
            form: None,
            flags: None,
        };
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
            let twice = match key {
                "place" => choice.place.replace(place(value)?).is_some(),
                "publish" => choice.publish.replace(word(value)?).is_some(),
                "entries" => choice.entries.replace(entries(value)?).is_some(),
                "entry-size" => choice.entry_size.replace(entry_size(value)?).is_some(),
                "form" => choice.form.replace(word(value)?).is_some(),
                "flags" => choice.flags.replace(flags(value)?).is_some(),
                _ => {
                    return Err(format!(
                        "no key {key:?}: there are place, publish, entries, entry-size, form, flags"
                    ))
                }
            };
            if twice {
                return Err(format!("{key} is there twice"));
            }
        }
        Ok(choice)
    }

    /// The pair as it was written.
    pub(super) fn text(&self) -> &str {
        &self.pair
    }

    /// As the module takes it.
    ///
    /// # Errors
    /// A member that is named is not there.
    pub(super) fn resolve(&self, drives: &Drives) -> Outcome<csd_mesh_pair> {
        let (from, to) = ordered_pair(&self.pair, drives)?;
        let mut pair = csd_mesh_pair {
            from,
            to,
            fields: 0,
            place: 0,
            place_drive: 0,
            publish: 0,
            entries: 0,
            entry_bytes: 0,
            form: 0,
            ring_flags: 0,
            reserved: [0; 2],
        };
        if let Some(place) = &self.place {
            (pair.place, pair.place_drive) = place.resolve(drives)?;
            pair.fields |= CSD_PAIR_PLACE;
        }
        let mut set = |field: u32, to: &mut u32, value: Option<u32>| {
            if let Some(value) = value {
                *to = value;
                pair.fields |= field;
            }
        };
        let publish = self.publish.map(Publish::code);
        set(CSD_PAIR_PUBLISH, &mut pair.publish, publish);
        set(CSD_PAIR_ENTRIES, &mut pair.entries, self.entries);
        set(CSD_PAIR_ENTRY_BYTES, &mut pair.entry_bytes, self.entry_size);
        set(CSD_PAIR_FORM, &mut pair.form, self.form.map(Form::code));
        set(CSD_PAIR_RING_FLAGS, &mut pair.ring_flags, self.flags);
        Ok(pair)
    }
}

/// One word of an enumeration.
fn word<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let known: Vec<String> = T::value_variants()
            .iter()
            .filter_map(|value| Some(value.to_possible_value()?.get_name().to_string()))
            .collect();
        format!("{text:?} is not {}", known.join(" or "))
    })
}

fn flags(text: &str) -> Result<u32, String> {
    if text == "none" {
        return Ok(0);
    }
    let one = |word: &str| {
        let known = FLAGS.iter().find(|(_, name)| *name == word);
        known.map(|(flag, _)| *flag).ok_or_else(|| {
            format!("{word:?} is not out-of-order, doorbell or metadata; none: no flag")
        })
    };
    text.split('+')
        .try_fold(0, |flags, word| Ok(flags | one(word)?))
}

/// The two members that `FROM:TO` names. Names may have colons: the one place to cut where both
/// sides are members counts.
///
/// # Errors
/// There is no such place, or more than one.
pub(super) fn ordered_pair(text: &str, drives: &Drives) -> Outcome<(u32, u32)> {
    let cuts = text.match_indices(':').map(|(at, _)| text.split_at(at));
    let found: Vec<(u32, u32)> = cuts
        .filter_map(|(from, to)| {
            let from = drives.find_member(from).ok()?;
            Some((from, drives.find_member(&to[1..]).ok()?))
        })
        .collect();
    match found[..] {
        [(from, to)] if from == to => Err(Failure::usage(format!(
            "{text:?} is one member and not two"
        ))),
        [pair] => Ok(pair),
        [] => match text.split_once(':') {
            // With one colon it is clear which name is unknown, and that failure says more.
            Some((from, to)) if !to.contains(':') => {
                drives.find_member(from)?;
                Ok((CSD_MEMBER_HOST, drives.find_member(to)?))
            }
            _ => Err(
                Failure::usage(format!("{text:?} is not FROM:TO of two members"))
                    .remedy("csdctl drive list; the host is called host"),
            ),
        },
        _ => Err(
            Failure::usage(format!("{text:?} can be read in several ways"))
                .remedy("the drives' names (csd0) instead of NQNs or PCI addresses"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_members_and_what_differs_each_once() {
        let pair = PairChoice::parse(
            "csd0:csd1,place=member=csd2,publish=index,entries=8,entry-size=128,flags=doorbell+metadata",
        )
        .unwrap();
        assert_eq!(pair.pair, "csd0:csd1");
        assert_eq!(pair.place, Some(Place::Member("csd2".into())));
        assert_eq!((pair.entries, pair.entry_size), (Some(8), Some(128)));
        assert_eq!(
            pair.flags,
            Some(CSD_RING_FLAG_DOORBELL | CSD_RING_FLAG_METADATA)
        );
        assert_eq!(PairChoice::parse("a:b,flags=none").unwrap().flags, Some(0));
        for bad in [
            "csd0",
            "csd0,place=host",
            "a:b,place",
            "a:b,place=",
            "a:b,place=member=",
            "a:b,where=host",
            "a:b,entries=1",
            "a:b,entries=8,entries=8",
            "a:b,form=tree",
            "a:b,flags=",
            "a:b,flags=fast",
            "a:b,entry-size=65",
        ] {
            assert!(PairChoice::parse(bad).is_err(), "{bad:?}");
        }
    }
}
