// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The rooms of IDC. This file owns the list of them; it never holds code.

pub mod function;
pub mod range;
