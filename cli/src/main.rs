// SPDX-License-Identifier: GPL-2.0

//! The program `csdctl`. All it does is in the library beside it.

use csdctl::{run, World};
use std::io::{stderr, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let code = run(
        std::env::args_os(),
        &World::real(),
        &mut stdout().lock(),
        &mut stderr(),
    );
    ExitCode::from(code as u8)
}
