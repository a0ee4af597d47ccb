// SPDX-License-Identifier: GPL-2.0

//! csdctl as a whole, run in this process on a machine that is not there.

mod bind;
mod golden;
mod json;
mod pipeline;
mod support;
