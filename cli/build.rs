// SPDX-License-Identifier: GPL-2.0

//! Makes Rust types and constants of `uapi/csd.h`, the ABI's single source, with the `bindgen`
//! program (`$BINDGEN`, else the one on the PATH): the same tool that the kernel build uses.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let header = manifest.join("abi.h");
    let uapi = manifest.join("../uapi");
    let output = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("abi.rs");
    let bindgen = env::var_os("BINDGEN").unwrap_or_else(|| "bindgen".into());

    println!("cargo::rerun-if-env-changed=BINDGEN");
    println!("cargo::rerun-if-changed={}", header.display());
    println!("cargo::rerun-if-changed={}", uapi.join("csd.h").display());

    let status = Command::new(&bindgen)
        .args(["--allowlist-item", "[Cc][Ss][Dd]_.*"])
        .args(["--use-core", "--no-doc-comments"])
        .args(["--no-prepend-enum-name"])
        .args(["--default-macro-constant-type", "unsigned"])
        .args(["--rust-target", "1.82", "--rust-edition", "2021"])
        .arg("--output")
        .arg(&output)
        .arg(&header)
        .arg("--")
        .arg("-I")
        .arg(&uapi)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{} failed: {status}", bindgen.to_string_lossy())),
        Err(error) => fail(&format!(
            "cannot run {}: {error}\n  try: apt install bindgen, or cargo install bindgen-cli, or set BINDGEN",
            bindgen.to_string_lossy()
        )),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("csdctl: {why}");
    std::process::exit(1)
}
