// SPDX-License-Identifier: GPL-2.0 OR MIT

//! Allocation of ranges of a drive's memory.
