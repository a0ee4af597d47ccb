// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The state of any function at work on one stream, in memory that the caller owns.
//!
//! Owns which function runs and whether its stream is over. What a function does is in its module.

use super::checksum::Checksum;
use super::ctr::Cipher;
use super::filter::{Filter, MAX_RECORD_LEN};
use super::options::{Parameters, ParametersError};
use super::{Crypto, Function, FunctionError, FunctionId, Outcome, Status, Step};
use zerocopy_derive::{FromZeros, Immutable, KnownLayout};

/// How much scratch memory a function with the parameters `parameters` needs, in bytes.
///
/// # Errors
/// What is wrong with the parameters.
pub fn scratch_len(parameters: &[u8]) -> Result<usize, ParametersError> {
    Ok(match Parameters::parse(parameters)? {
        Parameters::Filter(_) => MAX_RECORD_LEN,
        Parameters::Encrypt(_) | Parameters::Decrypt(_) | Parameters::Checksum => 0,
    })
}

/// A function at work on one stream, whichever it is.
///
/// All zero is "not started". Large: it is built in place ([`FunctionState::start`]) in zeroed
/// memory and never passed by value. The states lie side by side and not in a union, as all but
/// the filter's are tiny.
#[derive(FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct FunctionState {
    /// [`FunctionId`] on the wire, or 0: not started.
    function: u16,
    /// Whether the stream has come to its end, or to an error.
    ended: bool,
    reserved: [u8; 5],
    checksum: Checksum,
    cipher: Cipher,
    filter: Filter,
}

const _: () = assert!(size_of::<FunctionState>() <= 2560);

impl FunctionState {
    /// Begins a new stream with the function and the parameters that `parameters` encode, in
    /// place. Whatever stream there was is forgotten.
    ///
    /// # Errors
    /// What is wrong with the parameters. The state is then "not started".
    pub fn start(&mut self, parameters: &[u8]) -> Result<(), ParametersError> {
        self.function = 0;
        self.ended = false;
        let parameters = Parameters::parse_layout(parameters)?;
        match &parameters {
            Parameters::Filter(filter) => self.filter.start(filter)?,
            Parameters::Encrypt(cipher) | Parameters::Decrypt(cipher) => self.cipher.start(cipher),
            Parameters::Checksum => self.checksum.start(),
        }
        self.function = parameters.function().to_wire();
        Ok(())
    }

    /// The function, if it was started.
    pub fn id(&self) -> Option<FunctionId> {
        FunctionId::from_wire(self.function)
    }
}

impl Function for FunctionState {
    /// # Errors
    /// Besides what the function itself returns:
    /// - [`FunctionError::NotStarted`]: [`FunctionState::start`] has not succeeded.
    /// - [`FunctionError::Ended`]: an earlier call has failed or was [`Status::Done`].
    fn step(
        &mut self,
        scratch: &mut [u8],
        input: &[u8],
        last: bool,
        output: &mut [u8],
        crypto: &mut dyn Crypto,
    ) -> Result<Step, FunctionError> {
        let id = self.id().ok_or(FunctionError::NotStarted)?;
        if self.ended {
            return Err(FunctionError::Ended);
        }
        let function: &mut dyn Function = match id {
            FunctionId::Filter => &mut self.filter,
            FunctionId::Encrypt | FunctionId::Decrypt => &mut self.cipher,
            FunctionId::Checksum => &mut self.checksum,
        };
        let step = function.step(scratch, input, last, output, crypto);
        self.ended = !matches!(
            step,
            Ok(Step {
                status: Status::NeedInput | Status::NeedOutput,
                ..
            })
        );
        step
    }

    fn result(&self) -> Outcome {
        match self.id() {
            Some(FunctionId::Filter) => self.filter.result(),
            Some(FunctionId::Encrypt | FunctionId::Decrypt) => self.cipher.result(),
            Some(FunctionId::Checksum) => self.checksum.result(),
            None => Outcome::None,
        }
    }
}
