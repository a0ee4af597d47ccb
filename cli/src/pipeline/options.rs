// SPDX-License-Identifier: GPL-2.0

//! From stages as they were written to stages that the module takes: functions, parameters, keys.
//!
//! Owns which options a function has, what they default to, and that no option goes unused. The
//! parameters' encoding is `idc`'s.

use super::stages::{StageOption, StageSpec, SyntaxError};
use super::values::{delimiter, parse_iv, read_key, record_size, IV_LEN};
use crate::device::StageRequest;
use crate::drive::report;
use crate::failure::{Failure, Outcome};
use crate::names::{drive_name, Drives, Mesh};
use crate::sys::abi::{CSD_DRIVE_ANY, CSD_MAX_STAGES};
use crate::sys::KEY_LEN;
use crate::World;
use idc::function::filter::predicate;
use idc::function::{
    CipherParameters, FilterParameters, FunctionId, Functions, Parameters, Records,
};
use std::path::PathBuf;

/// The column delimiter where none is given.
const DEFAULT_DELIMITER: u8 = b'\t';

/// Options that apply to every stage which has none of its own.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct CommonOptions {
    /// filter: byte between columns, such as ';' or '\t' or '\x1f' [default: tab]
    #[arg(long, value_name = "C")]
    pub delimiter: Option<String>,

    /// filter: records are not lines but have this size, 1 to 64KiB; for bytes(), le() and be()
    #[arg(long, value_name = "SIZE", conflicts_with = "delimiter")]
    pub record_size: Option<String>,

    /// filter: which records to keep, such as 'col(3) = "Lu" and not col(1) < 100'
    #[arg(long = "where", value_name = "EXPR")]
    pub predicate: Option<String>,

    /// encrypt, decrypt: file that holds the key, 32 raw bytes
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// encrypt, decrypt: initial counter block, 32 hex digits; encrypt draws one if none is given
    #[arg(long, value_name = "HEX")]
    pub iv: Option<String>,
}

/// The counter block of an encrypt or decrypt stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageIv {
    /// The block.
    pub iv: [u8; IV_LEN],
    /// Whether csdctl drew it.
    pub drawn: bool,
}

/// Stages as the module takes them, and what is to be reported of them.
#[derive(Clone, Debug)]
pub struct Stages {
    /// For the module.
    pub requests: Vec<StageRequest>,
    /// Counter blocks, one a stage, `None` for functions that have none.
    pub ivs: Vec<Option<StageIv>>,
}

impl Stages {
    /// `filter@csd0`; without the drive if it is not placed yet.
    pub fn name(&self, index: usize) -> String {
        match self.requests.get(index) {
            None => format!("stage {index}"),
            Some(stage) if stage.drive == CSD_DRIVE_ANY => report::function(stage.function),
            Some(stage) => {
                format!(
                    "{}@{}",
                    report::function(stage.function),
                    drive_name(stage.drive)
                )
            }
        }
    }
}

/// Makes the stages that `specs`, which were read from `text`, and `common` describe.
///
/// # Errors
/// A function, an option or a drive is unknown, a value is bad, or an option is missing or goes
/// unused.
pub fn resolve(
    text: &str,
    specs: &[StageSpec],
    common: &CommonOptions,
    drives: &Drives,
    mesh: &Mesh,
    world: &World<'_>,
) -> Outcome<Stages> {
    if specs.len() > CSD_MAX_STAGES as usize {
        return Err(Failure::usage(format!(
            "{} stages: a pipeline has at most {CSD_MAX_STAGES}",
            specs.len()
        ))
        .remedy("two pipelines, the second on what the first has written"));
    }
    let mut used = Used::default();
    let mut stages = Stages {
        requests: Vec::new(),
        ivs: Vec::new(),
    };
    for spec in specs {
        let bad = |error: SyntaxError| error.failure("stages", text).stage(spec.function.clone());
        let id: FunctionId = spec.function.parse().map_err(|_| {
            let known = Functions::ALL;
            let message = format!("no function {:?}; there are {known}", spec.function);
            bad(SyntaxError::new(spec.at, message)).remedy("csdctl drive list --functions")
        })?;
        let resolver = Resolver {
            spec,
            text,
            common,
            world,
        };
        let mut request = StageRequest {
            function: id.to_wire().into(),
            drive: place(spec, drives, mesh)?,
            params: Vec::new(),
            key: None,
        };
        let mut iv = None;
        request.params = match id {
            FunctionId::Filter => resolver.filter(&mut used)?,
            FunctionId::Encrypt | FunctionId::Decrypt => {
                let (params, key, drawn) = resolver.cipher(id, &mut used)?;
                request.key = Some(key);
                iv = Some(drawn);
                params
            }
            FunctionId::Checksum => {
                resolver.check_names(&[])?;
                encode(&Parameters::Checksum)?
            }
        };
        stages.requests.push(request);
        stages.ivs.push(iv);
    }
    used.check(common)?;
    refuse_undone_encryption(&stages)?;
    Ok(stages)
}

/// Number of the drive that a stage asks for.
fn place(spec: &StageSpec, drives: &Drives, mesh: &Mesh) -> Outcome<u32> {
    let Some(name) = &spec.drive else {
        return Ok(CSD_DRIVE_ANY);
    };
    let drive = drives
        .find(name)
        .map_err(|failure| failure.stage(spec.function.clone()))?;
    if !mesh.drives().any(|member| member == drive.info.drive) {
        return Err(Failure::new(format!(
            "{}: {} is not in {}",
            spec.function,
            drive.name(),
            mesh.name()
        ))
        .drive(drive.name())
        .stage(spec.function.clone())
        .remedy(format!("csdctl mesh show {}", mesh.name())));
    }
    Ok(drive.info.drive)
}

/// Which of the common options some stage took.
#[derive(Default)]
struct Used {
    delimiter: bool,
    record_size: bool,
    predicate: bool,
    key_file: bool,
    iv: bool,
}

impl Used {
    /// An option that no stage takes is most likely meant for a stage that is not there.
    fn check(&self, common: &CommonOptions) -> Outcome {
        for (given, used, option, functions) in [
            (
                common.delimiter.is_some(),
                self.delimiter,
                "--delimiter",
                "filter",
            ),
            (
                common.record_size.is_some(),
                self.record_size,
                "--record-size",
                "filter",
            ),
            (
                common.predicate.is_some(),
                self.predicate,
                "--where",
                "filter",
            ),
            (
                common.key_file.is_some(),
                self.key_file,
                "--key-file",
                "encrypt or decrypt",
            ),
            (common.iv.is_some(), self.iv, "--iv", "encrypt or decrypt"),
        ] {
            if given && !used {
                return Err(Failure::usage(format!(
                    "{option} is given, but there is no {functions} stage without one of its own"
                ))
                .remedy(format!("the command without {option}")));
            }
        }
        Ok(())
    }
}

/// In CTR mode a second encryption with the same key and counter block gives the plain text back.
fn refuse_undone_encryption(stages: &Stages) -> Outcome {
    let encrypt = u32::from(FunctionId::Encrypt.to_wire());
    let both: Vec<_> = stages
        .requests
        .iter()
        .zip(&stages.ivs)
        .filter(|(stage, _)| stage.function == encrypt)
        .map(|(stage, iv)| (stage.key, iv.map(|iv| iv.iv)))
        .collect();
    for (index, one) in both.iter().enumerate() {
        if both[..index].contains(one) {
            return Err(Failure::usage(
                "two encrypt stages with the same key and IV would undo each other",
            )
            .remedy("an iv= for each of them, or none, so that they are drawn"));
        }
    }
    Ok(())
}

/// Looks one stage's options up.
struct Resolver<'a> {
    spec: &'a StageSpec,
    text: &'a str,
    common: &'a CommonOptions,
    world: &'a World<'a>,
}

impl Resolver<'_> {
    fn bad(&self, at: usize, message: impl Into<String>) -> Failure {
        SyntaxError::new(at, message)
            .failure("stages", self.text)
            .stage(self.spec.function.clone())
    }

    fn usage(&self, message: impl std::fmt::Display) -> Failure {
        Failure::usage(format!("{}: {message}", self.spec.function))
            .stage(self.spec.function.clone())
    }

    /// Refuses options that the function does not have, and options given twice.
    fn check_names(&self, known: &[&str]) -> Outcome {
        for (index, option) in self.spec.options.iter().enumerate() {
            if !known.contains(&&*option.name) {
                let list = match known {
                    [] => "it has none".to_string(),
                    _ => format!("it has {}", known.join(", ")),
                };
                let message = format!(
                    "{} has no option {:?}; {list}",
                    self.spec.function, option.name
                );
                return Err(self.bad(option.at, message));
            }
            if self.spec.options[..index]
                .iter()
                .any(|other| other.name == option.name)
            {
                return Err(self.bad(option.at, format!("{} is given twice", option.name)));
            }
        }
        Ok(())
    }

    fn own(&self, name: &str) -> Option<&StageOption> {
        self.spec.options.iter().find(|option| option.name == name)
    }

    fn filter(&self, used: &mut Used) -> Outcome<Vec<u8>> {
        self.check_names(&["where", "delimiter", "record-size"])?;
        let records = self.records(used)?;
        let predicate = match (self.own("where"), &self.common.predicate) {
            (Some(own), _) => {
                predicate::check(own.value.as_bytes()).map_err(|error| {
                    let at = own.value_at + usize::from(error.offset);
                    self.bad(at, format!("where: {}", error.reason))
                })?;
                &own.value
            }
            (None, Some(common)) => {
                used.predicate = true;
                predicate::check(common.as_bytes()).map_err(|error| {
                    SyntaxError::new(error.offset.into(), error.reason.to_string())
                        .failure("--where", common)
                        .stage(self.spec.function.clone())
                })?;
                common
            }
            (None, None) => {
                return Err(self
                    .usage("nothing says which records to keep")
                    .remedy("--where 'col(1) = \"text\"', or filter(where=…)"));
            }
        };
        encode(&Parameters::Filter(FilterParameters {
            records,
            predicate: predicate.as_bytes(),
        }))
    }

    /// What is a record: the stage's own option first, of either kind, then a common one.
    fn records(&self, used: &mut Used) -> Outcome<Records> {
        let lines = |delimiter| Records::Lines { delimiter };
        match (self.own("delimiter"), self.own("record-size")) {
            (Some(_), Some(size)) => Err(self.bad(
                size.at,
                "record-size: records of a fixed size have no delimiter".to_owned(),
            )),
            (Some(own), None) => delimiter(&own.unquoted())
                .map(lines)
                .map_err(|message| self.bad(own.value_at, format!("delimiter: {message}"))),
            (None, Some(own)) => record_size(&own.unquoted())
                .map_err(|message| self.bad(own.value_at, format!("record-size: {message}"))),
            (None, None) => match (&self.common.delimiter, &self.common.record_size) {
                (Some(common), _) => {
                    used.delimiter = true;
                    delimiter(common)
                        .map(lines)
                        .map_err(|message| self.usage(format!("--delimiter: {message}")))
                }
                (None, Some(common)) => {
                    used.record_size = true;
                    record_size(common)
                        .map_err(|message| self.usage(format!("--record-size: {message}")))
                }
                (None, None) => Ok(lines(DEFAULT_DELIMITER)),
            },
        }
    }

    fn cipher(
        &self,
        id: FunctionId,
        used: &mut Used,
    ) -> Outcome<(Vec<u8>, [u8; KEY_LEN], StageIv)> {
        self.check_names(&["key-file", "iv", "offset"])?;
        let path = match (self.own("key-file"), &self.common.key_file) {
            (Some(own), _) => PathBuf::from(own.unquoted()),
            (None, Some(common)) => {
                used.key_file = true;
                common.clone()
            }
            (None, None) => {
                return Err(self.usage("there is no key").remedy(format!(
                    "--key-file FILE with 32 raw bytes, or {}(key-file=FILE)",
                    self.spec.function
                )));
            }
        };
        let key = read_key(&path).map_err(|failure| failure.stage(self.spec.function.clone()))?;
        let mut iv = StageIv {
            iv: [0; IV_LEN],
            drawn: false,
        };
        match (self.own("iv"), &self.common.iv) {
            (Some(own), _) => {
                iv.iv = parse_iv(&own.unquoted())
                    .map_err(|message| self.bad(own.value_at, format!("iv: {message}")))?;
            }
            (None, Some(common)) => {
                used.iv = true;
                iv.iv =
                    parse_iv(common).map_err(|message| self.usage(format!("--iv: {message}")))?;
            }
            (None, None) if id == FunctionId::Decrypt => {
                return Err(self
                    .usage("there is no IV")
                    .remedy("--iv with the IV that the data was encrypted with"));
            }
            (None, None) => {
                iv.drawn = true;
                (self.world.random)(&mut iv.iv)
                    .map_err(|error| Failure::io("cannot draw an IV", &error))?;
            }
        }
        let offset = match self.own("offset") {
            Some(own) => crate::units::parse_size(&own.unquoted())
                .map_err(|message| self.bad(own.value_at, format!("offset: {message}")))?,
            None => 0,
        };
        let parameters = CipherParameters {
            // The module chooses the slot.
            key_slot: 0,
            offset,
            iv: iv.iv,
        };
        let parameters = match id {
            FunctionId::Decrypt => Parameters::Decrypt(parameters),
            _ => Parameters::Encrypt(parameters),
        };
        Ok((encode(&parameters)?, key, iv))
    }
}

fn encode(parameters: &Parameters<'_>) -> Outcome<Vec<u8>> {
    let mut bytes = vec![0; parameters.encoded_len()];
    let written = parameters
        .encode(&mut bytes)
        .map_err(|error| Failure::usage(format!("{}: {error}", parameters.function())))?;
    bytes.truncate(written);
    Ok(bytes)
}
