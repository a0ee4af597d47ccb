// SPDX-License-Identifier: GPL-2.0

//! The program `csdctl`. All it does is in the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(csdctl::run_here() as u8)
}
