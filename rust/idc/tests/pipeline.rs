// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Placement of stages, the pipeline descriptor and the reports.

use idc::function::{FilterParameters, FunctionId, Functions, Parameters};
use idc::member::MemberId;
use idc::pipeline::descriptor::{
    Builder, Descriptor, DescriptorError, HopSpec, PipelineSpec, Sink, Source,
};
use idc::pipeline::plan::{hops, place, PlanError, PlanHop, PlanRequest, PlanStage};
use idc::pipeline::report::{Report, State};
use idc::status::Status;
use idc::window::WindowRef;
use proptest::prelude::*;

use FunctionId::{Checksum, Decrypt, Encrypt, Filter};

fn member(id: u16) -> MemberId {
    MemberId::new(id).unwrap()
}

fn anywhere(function: FunctionId) -> PlanStage {
    PlanStage {
        function,
        member: None,
    }
}

fn at(function: FunctionId, id: u16) -> PlanStage {
    PlanStage {
        function,
        member: Some(member(id)),
    }
}

/// Where each stage runs, and the hops as (member, first stage, stages).
type Plan = (Vec<u16>, Vec<(u16, u16, u16)>);

/// Places `stages` in a mesh of four drives, of which `offers` lists what each offers.
fn placed(
    source: u16,
    sink: Option<u16>,
    offers: &[&[FunctionId]],
    stages: &[PlanStage],
) -> Result<Plan, PlanError> {
    let functions = |member: MemberId| {
        let offered = offers
            .get(usize::from(member.get()) - 1)
            .copied()
            .unwrap_or(&[]);
        offered
            .iter()
            .fold(Functions::NONE, |all, id| all.with(*id))
    };
    let request = PlanRequest {
        source: MemberId::new(source).unwrap(),
        sink: sink.map(member),
        drives: offers.len() as u16,
        functions: &functions,
    };
    let mut stages = stages.to_vec();
    place(&request, &mut stages)?;
    let hops = hops(&request, &stages)?;
    let hops = hops.iter().map(
        |PlanHop {
             member,
             first_stage,
             stage_count,
         }| { (member.get(), *first_stage, *stage_count) },
    );
    Ok((
        stages
            .iter()
            .map(|stage| stage.member.unwrap().get())
            .collect(),
        hops.collect(),
    ))
}

const ALL: &[FunctionId] = &[Filter, Encrypt, Decrypt, Checksum];

#[test]
fn the_first_stage_runs_at_the_source_and_the_next_on_the_next_drive() {
    let plan = placed(
        1,
        None,
        &[ALL, ALL, ALL],
        &[anywhere(Filter), anywhere(Encrypt)],
    );
    assert_eq!(plan, Ok((vec![1, 2], vec![(1, 0, 1), (2, 1, 1)])));
    let plan = placed(
        3,
        None,
        &[ALL, ALL, ALL],
        &[anywhere(Filter), anywhere(Encrypt)],
    );
    assert_eq!(plan, Ok((vec![3, 1], vec![(3, 0, 1), (1, 1, 1)])));
}

#[test]
fn a_drive_without_the_function_is_passed_over() {
    let offers: &[&[FunctionId]] = &[&[], &[Encrypt], &[Filter]];
    let plan = placed(1, None, offers, &[anywhere(Filter), anywhere(Encrypt)]);
    assert_eq!(
        plan,
        Ok((vec![3, 2], vec![(1, 0, 0), (3, 0, 1), (2, 1, 1)]))
    );
}

#[test]
fn with_one_drive_all_stages_are_one_hop() {
    let plan = placed(
        1,
        None,
        &[ALL],
        &[anywhere(Filter), anywhere(Encrypt), anywhere(Checksum)],
    );
    assert_eq!(plan, Ok((vec![1, 1, 1], vec![(1, 0, 3)])));
}

#[test]
fn the_last_stage_goes_to_the_sink_or_a_hop_is_added() {
    let plan = placed(
        1,
        Some(3),
        &[ALL, ALL, ALL],
        &[anywhere(Filter), anywhere(Encrypt)],
    );
    assert_eq!(plan, Ok((vec![1, 3], vec![(1, 0, 1), (3, 1, 1)])));
    let offers: &[&[FunctionId]] = &[ALL, ALL, &[]];
    let plan = placed(1, Some(3), offers, &[anywhere(Filter), anywhere(Encrypt)]);
    assert_eq!(
        plan,
        Ok((vec![1, 2], vec![(1, 0, 1), (2, 1, 1), (3, 2, 0)]))
    );
}

#[test]
fn stages_placed_by_hand_stay_there() {
    let plan = placed(
        1,
        None,
        &[ALL, ALL],
        &[at(Filter, 2), at(Encrypt, 1), at(Checksum, 2)],
    );
    assert_eq!(
        plan,
        Ok((
            vec![2, 1, 2],
            vec![(1, 0, 0), (2, 0, 1), (1, 1, 1), (2, 2, 1)]
        ))
    );
}

#[test]
fn what_cannot_be_placed_is_named() {
    let offers: &[&[FunctionId]] = &[&[Filter], &[Filter]];
    let error = |stages: &[PlanStage]| placed(1, None, offers, stages).unwrap_err();
    assert_eq!(error(&[]), PlanError::Empty);
    assert_eq!(error(&[anywhere(Filter); 9]), PlanError::TooMany);
    assert_eq!(
        error(&[anywhere(Filter), anywhere(Encrypt)]),
        PlanError::NoDrive { stage: 1 }
    );
    assert_eq!(
        error(&[at(Encrypt, 2)]),
        PlanError::NotOffered {
            stage: 0,
            member: member(2)
        }
    );
    assert_eq!(error(&[at(Filter, 3)]), PlanError::Member);
    assert_eq!(error(&[at(Filter, 0)]), PlanError::Member);
}

fn place_ref(window: u32, offset: u64) -> WindowRef {
    WindowRef { window, offset }
}

fn host_sink() -> Sink {
    Sink::HostWindow {
        ring: place_ref(3, 64),
        length: 65536,
        produced: place_ref(4, 0),
        consumed: place_ref(3, 0),
    }
}

fn spec(sink: Sink) -> PipelineSpec {
    PipelineSpec {
        stream: 0x1122_3344,
        chunk_bytes: 8192,
        deadline_ms: 30_000,
        source: Source {
            nsid: 1,
            offset: 12345,
            length: 1 << 40,
        },
        sink,
        report: place_ref(4, 64),
    }
}

fn hop(id: u16, stage_count: u16) -> HopSpec {
    HopSpec {
        member: member(id),
        stage_count,
        buffers: 4,
        input: place_ref(u32::from(id), 0),
    }
}

fn build(
    spec: &PipelineSpec,
    hops: &[HopSpec],
    stages: &[(FunctionId, &[u8])],
) -> Result<Vec<u8>, DescriptorError> {
    let mut buffer = vec![0xee; 16384];
    let mut builder = Builder::new(&mut buffer, spec)?;
    for hop in hops {
        builder.hop(hop)?;
    }
    for (function, params) in stages {
        builder.stage(*function, params)?;
    }
    let length = builder.finish()?;
    buffer.truncate(length);
    Ok(buffer)
}

fn example(sink: Sink) -> Vec<u8> {
    let hops = [hop(1, 1), hop(2, 2), hop(1, 0)];
    let stages: [(FunctionId, &[u8]); 3] = [(Filter, b"one"), (Encrypt, b"two"), (Checksum, b"")];
    build(&spec(sink), &hops, &stages).unwrap()
}

#[test]
fn a_descriptor_says_what_was_put_in() {
    let namespace = Sink::Namespace {
        nsid: 2,
        offset: 8192,
        limit: 1 << 30,
        buffers: place_ref(9, 4096),
        count: 3,
    };
    for sink in [host_sink(), namespace] {
        let bytes = example(sink);
        let descriptor = Descriptor::parse(&bytes).unwrap();
        assert_eq!(descriptor.stream(), 0x1122_3344);
        assert_eq!(
            (descriptor.chunk_bytes(), descriptor.deadline_ms()),
            (8192, 30_000)
        );
        assert_eq!(descriptor.source(), spec(sink).source);
        assert_eq!(descriptor.sink(), sink);
        assert_eq!(descriptor.report(), place_ref(4, 64));
        assert_eq!(descriptor.hop_count(), 3);
        assert_eq!(descriptor.hop(1), Some(hop(2, 2)));
        assert_eq!(descriptor.hop(3), None);
        let stages: Vec<_> = descriptor
            .own_stages()
            .map(|s| (s.function, s.params))
            .collect();
        assert_eq!(stages, [(Filter, b"one".as_slice())]);
    }
}

/// First bytes of the header and the first hop, from the specification's table.
#[test]
fn the_bytes_are_those_of_the_specification() {
    let bytes = example(host_sink());
    let expected = b"CSDP\x01\0\0\0\x02\x01\0\0\x44\x33\x22\x11\0\x20\0\0\x30\x75\0\0\0\0\x03\0\0\0\x03\0\x03\0\x01\0";
    assert_eq!(bytes.len(), 144 + 3 * 32 + 3 * 4 + 3 + 3);
    assert_eq!(&bytes[..36], expected);
    assert_eq!(
        &bytes[144..160],
        b"\x01\0\x01\0\x04\0\0\0\x01\0\0\0\0\0\0\0"
    );
    assert_eq!(&bytes[240..247], b"\x01\0\x03\0one");
}

#[test]
fn each_hop_passes_on_only_what_is_still_to_run() {
    let mut bytes = example(host_sink());
    for (first_hop, first_stage, own) in [
        (0, 0, vec![Filter]),
        (1, 1, vec![Encrypt, Checksum]),
        (2, 3, vec![]),
    ] {
        let descriptor = Descriptor::parse(&bytes).unwrap();
        assert_eq!(
            (descriptor.first_hop(), descriptor.first_stage()),
            (first_hop, first_stage)
        );
        assert_eq!(descriptor.all_stages(), 3);
        let stages: Vec<_> = descriptor
            .own_stages()
            .map(|stage| stage.function)
            .collect();
        assert_eq!(stages, own);
        let next = descriptor.rest().map(|rest| {
            let bytes = [&rest.header[..], rest.hops, rest.stages].concat();
            assert_eq!(bytes.len(), rest.len());
            bytes
        });
        match next {
            Some(next) => bytes = next,
            None => assert_eq!(first_hop, 2),
        }
    }
}

#[test]
fn impossible_pipelines_are_refused() {
    let one: &[(FunctionId, &[u8])] = &[(Filter, b"")];
    let hops = [hop(1, 1)];
    let good = spec(host_sink());
    let error = |spec: &PipelineSpec| build(spec, &hops, one).unwrap_err();
    build(&good, &hops, one).unwrap();
    assert_eq!(
        error(&PipelineSpec { stream: 0, ..good }),
        DescriptorError::Stream
    );
    for chunk_bytes in [0, 4095, 6144, (1 << 20) + 4096] {
        assert_eq!(
            error(&PipelineSpec {
                chunk_bytes,
                ..good
            }),
            DescriptorError::Chunk
        );
    }
    for deadline_ms in [0, 3_600_001] {
        assert_eq!(
            error(&PipelineSpec {
                deadline_ms,
                ..good
            }),
            DescriptorError::Deadline
        );
    }
    let source = Source {
        nsid: 1,
        offset: u64::MAX,
        length: 1,
    };
    assert_eq!(
        error(&PipelineSpec { source, ..good }),
        DescriptorError::Source
    );
    assert_eq!(
        error(&PipelineSpec {
            report: place_ref(4, 8),
            ..good
        }),
        DescriptorError::Place
    );
    for length in [0, 4097, 1 << 40] {
        let mut sink = host_sink();
        if let Sink::HostWindow { length: known, .. } = &mut sink {
            *known = length;
        }
        assert_eq!(error(&PipelineSpec { sink, ..good }), DescriptorError::Sink);
    }
    let shapes: &[&[HopSpec]] = &[
        &[],
        &[hop(0, 1)],
        &[HopSpec {
            buffers: 1,
            ..hop(1, 1)
        }],
        &[HopSpec {
            buffers: 9,
            ..hop(1, 1)
        }],
        &[hop(1, 0), hop(1, 1)],
        &[hop(1, 0), hop(2, 0), hop(3, 1)],
    ];
    for hops in shapes {
        assert_eq!(
            build(&good, hops, one).unwrap_err(),
            DescriptorError::Hops,
            "{hops:?}"
        );
    }
    assert_eq!(
        build(&good, &[hop(1, 2)], one).unwrap_err(),
        DescriptorError::Stages
    );
    assert_eq!(
        build(&good, &[hop(1, 0)], &[]).unwrap_err(),
        DescriptorError::Stages
    );
    let long = vec![0; 4000];
    assert_eq!(
        build(&good, &hops, &[(Filter, &long)]).unwrap_err(),
        DescriptorError::Function
    );
}

#[test]
fn a_real_filter_travels() {
    let parameters = Parameters::Filter(FilterParameters::lines(b';', b"col(3) = \"Lu\""));
    let mut encoded = vec![0; parameters.encoded_len()];
    parameters.encode(&mut encoded).unwrap();
    let bytes = build(&spec(host_sink()), &[hop(1, 1)], &[(Filter, &encoded)]).unwrap();
    let descriptor = Descriptor::parse(&bytes).unwrap();
    let stage = descriptor.own_stages().next().unwrap();
    assert_eq!(Parameters::parse(stage.params).unwrap(), parameters);
}

#[test]
fn a_report_survives() {
    let report = Report {
        member: member(3),
        function: Filter.to_wire(),
        state: State::Done,
        status: Status::FUNCTION_ERROR,
        bytes_in: 1,
        bytes_out: 2,
        result: [3, 4],
        chunks: 5,
        messages: 6,
        updates: 7,
    };
    let mut bytes = [0; 64];
    report.encode(&mut bytes);
    assert_eq!(Report::parse(&bytes), Some(report));
    assert_eq!(
        bytes[32..48],
        [5, 0, 0, 0, 6, 0, 0, 0, 0x0c, 0x07, 3, 0, 1, 0, 2, 0]
    );
    assert_eq!(Report::parse(&bytes[1..]), None);
    bytes[46] = 9;
    assert_eq!(Report::parse(&bytes), None);
    assert_eq!(Report::parse(&[0; 64]), Some(Report::default()));
}

proptest! {
    #[test]
    fn random_descriptors_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = Descriptor::parse(&bytes).map(|d| d.rest().map(|rest| rest.len()));
    }

    /// A descriptor with some bytes changed is refused or still consistent.
    #[test]
    fn mutated_descriptors_are_refused_or_consistent(
        changes in proptest::collection::vec((0_usize..255, any::<u8>()), 1..6),
        cut in proptest::option::of(0_usize..255),
    ) {
        let mut bytes = example(host_sink());
        for (at, value) in changes {
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        if let Ok(descriptor) = Descriptor::parse(&bytes) {
            for index in 0..descriptor.hop_count() {
                let hop = descriptor.hop(index).unwrap();
                prop_assert!(!hop.member.is_host() && (2..=8).contains(&hop.buffers));
            }
            let own = descriptor.hop(0).unwrap().stage_count;
            prop_assert_eq!(descriptor.own_stages().count(), usize::from(own));
            if let Some(rest) = descriptor.rest() {
                let rest = [&rest.header[..], rest.hops, rest.stages].concat();
                prop_assert!(Descriptor::parse(&rest).is_ok());
            }
        }
    }
}
