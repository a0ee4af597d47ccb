// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Stage parameters on the wire, the names and numbers of functions, and the life of a state.

mod stream;

use idc::function::filter::predicate::{check, PredicateError, Reason};
use idc::function::options::MAX_PARAMETERS_LEN;
use idc::function::{
    scratch_len, CipherParameters, CryptoError, FilterParameters, Function, FunctionError,
    FunctionId, FunctionState, Functions, NoCrypto, Outcome, Parameters, ParametersError, Status,
    Step,
};
use proptest::prelude::*;
use stream::{encode, filter};
use zerocopy::FromZeros;

const CIPHER: CipherParameters = CipherParameters {
    key_slot: 0x1234,
    offset: 0x0102_0304_0506_0708,
    iv: *b"\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff",
};

fn samples() -> [Vec<u8>; 4] {
    [
        filter(b';', "col(1)=2"),
        encode(&Parameters::Encrypt(CIPHER)),
        encode(&Parameters::Decrypt(CIPHER)),
        encode(&Parameters::Checksum),
    ]
}

fn state() -> Box<FunctionState> {
    FunctionState::new_box_zeroed().expect("memory")
}

#[test]
fn parameters_are_laid_out_as_the_specification_says() {
    let expected: [&[u8]; 4] = [
        b"\x01\0\x01\0\x18\0\0\0\x01;\x08\0\0\0\0\0col(1)=2",
        b"\x02\0\x01\0\x28\0\0\0\x34\x12\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\
          \xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff",
        b"\x03\0\x01\0\x28\0\0\0\x34\x12\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\
          \xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\xff",
        b"\x04\0\x01\0\x08\0\0\0",
    ];
    for (sample, expected) in samples().iter().zip(expected) {
        assert_eq!(sample, expected);
    }
    assert_eq!(MAX_PARAMETERS_LEN, 1040);
}

#[test]
fn every_byte_that_is_missing_too_much_or_reserved_is_noticed() {
    for sample in samples() {
        for len in 0..sample.len() {
            let cut = Parameters::parse(&sample[..len]);
            assert_eq!(cut, Err(ParametersError::Length));
        }
        let more = [&sample[..], b"\0"].concat();
        assert_eq!(Parameters::parse(&more), Err(ParametersError::Length));
        // A header that owns up to the byte does not make it right.
        let mut owned = more.clone();
        owned[4] += 1;
        assert_eq!(Parameters::parse(&owned), Err(ParametersError::Length));

        let mut reserved = vec![3, 6, 7];
        match sample[0] {
            1 => reserved.extend([12, 13, 14, 15]),
            2 | 3 => reserved.extend(10..16),
            _ => (),
        }
        for at in reserved {
            let mut dirty = sample.clone();
            dirty[at] = 0x80;
            let error = Parameters::parse(&dirty);
            assert_eq!(error, Err(ParametersError::Reserved), "byte {at}");
        }
    }
}

#[test]
fn what_is_unknown_or_makes_no_sense_is_refused_and_named() {
    let change = |at: usize, to: u8| {
        let mut bytes = filter(b';', "col(1)=2");
        bytes[at] = to;
        let mut state = state();
        let started = state.start(&bytes);
        assert_eq!(Parameters::parse(&bytes).err(), started.err());
        assert_eq!(scratch_len(&bytes).err(), started.err());
        assert_eq!(state.id(), None);
        started
    };
    assert_eq!(change(0, 0), Err(ParametersError::Function(0)));
    assert_eq!(change(1, 1), Err(ParametersError::Function(0x101)));
    assert_eq!(change(0, 5), Err(ParametersError::Function(5)));
    assert_eq!(change(2, 2), Err(ParametersError::Version(2)));
    assert_eq!(change(8, 0), Err(ParametersError::Format(0)));
    assert_eq!(change(9, b'\n'), Err(ParametersError::Delimiter));
    let (offset, reason) = (5, Reason::ExpectedColumnClose);
    let error = PredicateError { offset, reason };
    assert_eq!(change(21, b'('), Err(ParametersError::Predicate(error)));
}

#[test]
fn what_would_be_refused_is_not_encoded() {
    let mut buffer = [0; MAX_PARAMETERS_LEN + 100];
    let mut encode = |delimiter, predicate: &[u8]| {
        let filter = FilterParameters::lines(delimiter, predicate);
        Parameters::Filter(filter).encode(&mut buffer)
    };
    assert_eq!(encode(b'\n', b"col(1)=2"), Err(ParametersError::Delimiter));
    for bad in [&b"col(1"[..], b"", &[b' '; 1025], &[b' '; 70_000]] {
        let error = ParametersError::Predicate(check(bad).unwrap_err());
        assert_eq!(encode(b';', bad), Err(error));
    }
    let mut long = b"col(1)=2".to_vec();
    long.resize(1024, b' ');
    assert_eq!(encode(b';', &long), Ok(MAX_PARAMETERS_LEN));
}

#[test]
fn a_buffer_that_is_too_short_is_left_alone() {
    for parameters in [Parameters::Encrypt(CIPHER), Parameters::Checksum] {
        let mut buffer = vec![0xee; parameters.encoded_len() - 1];
        let result = parameters.encode(&mut buffer);
        assert_eq!(result, Err(ParametersError::Room));
        assert!(buffer.iter().all(|&byte| byte == 0xee));
    }
}

#[test]
fn only_the_filter_needs_scratch_memory() {
    let lens = samples().map(|sample| scratch_len(&sample));
    assert_eq!(lens, [Ok(65536), Ok(0), Ok(0), Ok(0)]);
}

#[test]
fn functions_have_names_and_numbers_that_never_change() {
    let known = [
        (1, "filter"),
        (2, "encrypt"),
        (3, "decrypt"),
        (4, "checksum"),
    ];
    for (number, name) in known {
        let id: FunctionId = name.parse().unwrap();
        assert_eq!((id.to_wire(), id.to_string()), (number, name.to_string()));
        assert_eq!(FunctionId::from_wire(number), Some(id));
        assert_eq!(Functions::NONE.with(id).to_wire(), 1 << number);
    }
    for number in [0, 5, 31, 32, 0x101, u16::MAX] {
        assert_eq!(FunctionId::from_wire(number), None);
    }
    for name in ["", "Filter", "filter ", "compress"] {
        let error = name.parse::<FunctionId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no such function; there are filter encrypt decrypt checksum"
        );
    }
}

#[test]
fn a_set_of_functions_drops_what_nobody_here_knows() {
    let set = Functions::from_wire(u32::MAX);
    assert_eq!((set, set.to_wire()), (Functions::ALL, 0b11110));
    let set = set.without(FunctionId::Encrypt);
    assert_eq!(set.to_string(), "filter decrypt checksum");
    assert!(!set.contains(FunctionId::Encrypt) && set.contains(FunctionId::Filter));
    assert!(Functions::NONE.is_empty() && Functions::from_wire(1).is_empty());
}

#[test]
fn a_state_is_not_started_until_it_is_and_ends_once() {
    let mut state = state();
    let step = |state: &mut FunctionState, input: &[u8], last| {
        state.step(&mut [], input, last, &mut [0; 8], &mut NoCrypto)
    };
    assert_eq!(step(&mut state, b"", true), Err(FunctionError::NotStarted));
    assert_eq!((state.id(), state.result()), (None, Outcome::None));

    for _ in 0..2 {
        state.start(&encode(&Parameters::Checksum)).unwrap();
        assert_eq!(state.id(), Some(FunctionId::Checksum));
        let step_of = |len, status| Step {
            consumed: len,
            produced: len,
            status,
        };
        assert_eq!(
            step(&mut state, b"123", false),
            Ok(step_of(3, Status::NeedInput))
        );
        assert_eq!(
            step(&mut state, b"456789...", true),
            Ok(step_of(8, Status::NeedOutput))
        );
        assert_eq!(step(&mut state, b".", true), Ok(step_of(1, Status::Done)));
        assert_eq!(step(&mut state, b"", true), Err(FunctionError::Ended));
        let crc32c = idc::function::crc32c::update(0, b"123456789...");
        assert_eq!(state.result(), Outcome::Checksum { crc32c, bytes: 12 });
    }

    state.start(&encode(&Parameters::Encrypt(CIPHER))).unwrap();
    let no_key = FunctionError::Crypto(CryptoError::NoKey);
    assert_eq!(step(&mut state, b"x", false), Err(no_key));
    assert_eq!(step(&mut state, b"x", false), Err(FunctionError::Ended));

    assert!(state.start(b"").is_err());
    assert_eq!(
        step(&mut state, b"x", false),
        Err(FunctionError::NotStarted)
    );
}

#[test]
fn scratch_memory_that_is_too_small_is_an_error_and_only_where_it_is_needed() {
    let mut state = state();
    let mut step = |input: &[u8], last| {
        state.start(&filter(b';', "not col(2)=1")).unwrap();
        state.step(&mut [0; 3], input, last, &mut [0; 8], &mut NoCrypto)
    };
    assert!(step(b"abcd\n", true).is_ok());
    assert!(step(b"abc", false).is_ok());
    assert_eq!(step(b"abcd", false), Err(FunctionError::Scratch));
    assert_eq!(step(b"abcd", true), Err(FunctionError::Scratch));
}

#[test]
fn errors_and_outcomes_survive_the_wire() {
    for error in [
        FunctionError::NotStarted,
        FunctionError::Ended,
        FunctionError::Scratch,
        FunctionError::RecordTooLong { offset: u64::MAX },
        FunctionError::OffsetOverflow,
        FunctionError::Crypto(CryptoError::NoKey),
        FunctionError::Crypto(CryptoError::Failed),
    ] {
        assert_ne!(error.code(), 0);
        let received = FunctionError::from_wire(error.code(), error.detail());
        assert_eq!(received, Some(error));
    }
    assert_eq!(FunctionError::from_wire(0, 0), None);
    let (records_in, records_out) = (7, 3);
    let (crc32c, bytes) = (u32::MAX, u64::MAX);
    for (id, outcome) in [
        (
            FunctionId::Filter,
            Outcome::Filter {
                records_in,
                records_out,
            },
        ),
        (FunctionId::Encrypt, Outcome::Cipher { bytes }),
        (FunctionId::Decrypt, Outcome::Cipher { bytes }),
        (FunctionId::Checksum, Outcome::Checksum { crc32c, bytes }),
    ] {
        assert_eq!(Outcome::from_wire(id, outcome.to_wire()), outcome);
    }
}

#[test]
fn the_state_of_a_function_stays_small() {
    assert!(size_of::<FunctionState>() <= 2560);
}

proptest! {
    #[test]
    fn parameters_come_back_as_they_were_sent(key_slot: u16, offset: u64, iv: [u8; 16], column: u16, delimiter: u8) {
        let cipher = CipherParameters { key_slot, offset, iv };
        let predicate = format!("col({column}) contains \"x\"");
        let filter = FilterParameters::lines(delimiter, predicate.as_bytes() );
        let mut all = vec![Parameters::Encrypt(cipher), Parameters::Decrypt(cipher), Parameters::Checksum];
        if delimiter != b'\n' {
            all.push(Parameters::Filter(filter));
        }
        for parameters in all {
            let encoded = encode(&parameters);
            prop_assert_eq!(Parameters::parse(&encoded), Ok(parameters));
        }
    }

    #[test]
    fn random_parameters_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..60),
        (function, consistent) in (0u8..6, any::<bool>()),
    ) {
        if consistent && bytes.len() >= 8 {
            let len = bytes.len() as u8;
            bytes[..8].copy_from_slice(&[function, 0, 1, 0, len, 0, 0, 0]);
        }
        let mut state = state();
        let started = state.start(&bytes);
        prop_assert_eq!(Parameters::parse(&bytes).map(|_| ()), started);
        prop_assert_eq!(state.id().is_some(), started.is_ok());
    }
}
