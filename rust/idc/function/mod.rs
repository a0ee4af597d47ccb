// SPDX-License-Identifier: GPL-2.0 OR MIT

//! The functions that a drive applies to a stream of data.
