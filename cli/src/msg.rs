// SPDX-License-Identifier: GPL-2.0

//! `csdctl msg`: messages by hand, to see that a mesh works and how fast.
//!
//! Owns pairs, counting and timing as the module reports them. It times nothing itself.

use crate::device::{Device, Message};
use crate::failure::{Exit, Failure, Outcome};
use crate::names::{find_mesh, member_name, Drives, Mesh};
use crate::output::{Output, Table};
use crate::sys::abi::{CSD_MEMBER_HOST, CSD_MSG_NO_RESPONSE, CSD_MSG_PING, CSD_MSG_SEND};
use crate::units::{hex, parse_duration, parse_hex, parse_size32, time};
use crate::World;
use clap::{Args, Subcommand};
use nix::errno::Errno;
use serde::Serialize;
use std::time::Duration;

/// All drives of the mesh, where a member is expected.
const ALL: &str = "all";

/// Messages: ping, send, recv
#[derive(Subcommand, Debug)]
pub enum MsgCommand {
    /// Send messages that are answered at once, and time the answers
    Ping(PingArgs),
    /// Put a message into a member's inbox
    Send(SendArgs),
    /// Take a message from an inbox
    Recv(RecvArgs),
}

/// Arguments of `msg ping`
#[derive(Args, Debug)]
pub struct PingArgs {
    /// Sender: host, a drive, or all
    #[arg(long, value_name = "MEMBER", default_value = "host")]
    from: String,

    /// Receiver: host, a drive, or all, which means all other drives
    #[arg(long, value_name = "MEMBER", default_value = "all")]
    to: String,

    /// Messages to each receiver
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// Bytes of payload, up to the entry size less 28
    #[arg(long, value_name = "SIZE", default_value = "16", value_parser = parse_size32)]
    size: u32,

    #[command(flatten)]
    common: Common,
}

/// Arguments of `msg send`
#[derive(Args, Debug)]
pub struct SendArgs {
    /// Receiver: host or a drive
    #[arg(long, value_name = "MEMBER")]
    to: String,

    /// Sender: host or a drive
    #[arg(long, value_name = "MEMBER", default_value = "host")]
    from: String,

    /// What to send
    #[arg(required_unless_present = "hex", conflicts_with = "hex")]
    text: Option<String>,

    /// What to send, in hex digits
    #[arg(long, value_name = "HEX", value_parser = parse_payload)]
    hex: Option<Payload>,

    /// Ask for no response: done when the entry is in the buffer. From the host only
    #[arg(long)]
    no_response: bool,

    #[command(flatten)]
    common: Common,
}

/// Arguments of `msg recv`
#[derive(Args, Debug)]
pub struct RecvArgs {
    /// Whose inbox: host or a drive
    #[arg(long, value_name = "MEMBER", default_value = "host")]
    at: String,

    /// How long to wait (500ms, 30s, 2m), 0: not at all; for ever if not given
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// The mesh; may be left out if there is only one
    #[arg(long)]
    mesh: Option<String>,
}

#[derive(Args, Debug)]
struct Common {
    /// How long to wait for an answer (500ms, 30s, 2m)
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,

    /// The mesh; may be left out if there is only one
    #[arg(long)]
    mesh: Option<String>,
}

impl Common {
    fn timeout_ms(&self) -> u32 {
        // 0 would mean the kernel's default.
        u32::try_from(self.timeout.as_millis())
            .unwrap_or(u32::MAX)
            .max(1)
    }
}

#[derive(Clone, Debug)]
struct Payload(Vec<u8>);

fn parse_payload(text: &str) -> Result<Payload, String> {
    parse_hex(text).map(Payload)
}

#[derive(Serialize)]
struct PingReport {
    mesh: String,
    payload_bytes: u32,
    pairs: Vec<PairReport>,
}

#[derive(Serialize)]
struct PairReport {
    from: String,
    to: String,
    sent: u32,
    answered: u32,
    rtt_min_ns: Option<u64>,
    rtt_median_ns: Option<u64>,
    rtt_max_ns: Option<u64>,
    rtts_ns: Vec<u64>,
    error: Option<String>,
}

#[derive(Serialize)]
struct SendReport {
    mesh: String,
    from: String,
    to: String,
    bytes: usize,
    rtt_ns: Option<u64>,
}

#[derive(Serialize)]
struct RecvReport {
    mesh: String,
    at: String,
    from: String,
    bytes: usize,
    hex: String,
    text: Option<String>,
    dropped: u64,
}

/// Runs a `msg` command.
///
/// # Errors
/// What was asked for was not done.
pub fn run(command: &MsgCommand, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    match command {
        MsgCommand::Ping(args) => ping(args, world, output),
        MsgCommand::Send(args) => send(args, world, output),
        MsgCommand::Recv(args) => recv(args, world, output),
    }
}

/// The member of `mesh` that `name` names.
fn member(device: &dyn Device, mesh: &Mesh, name: &str) -> Outcome<u32> {
    let number = Drives::load(device)?.find_member(name)?;
    if number == CSD_MEMBER_HOST || mesh.drives().any(|drive| drive == number) {
        return Ok(number);
    }
    let name = member_name(number);
    Err(Failure::new(format!("{name} is not in {}", mesh.name()))
        .drive(name)
        .remedy(format!("csdctl mesh show {}", mesh.name())))
}

/// The members that `name` names: one, or all drives.
fn members(device: &dyn Device, mesh: &Mesh, name: &str) -> Outcome<Vec<u32>> {
    if name == ALL {
        return Ok(mesh.drives().collect());
    }
    Ok(vec![member(device, mesh, name)?])
}

fn ping(args: &PingArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let mesh = find_mesh(&*device, args.common.mesh.as_deref())?;
    let senders = members(&*device, &mesh, &args.from)?;
    let receivers = members(&*device, &mesh, &args.to)?;
    // Bytes that differ from their neighbours, so that a shifted or cut echo is seen.
    let payload: Vec<u8> = (0..args.size).map(|index| (index % 251) as u8).collect();
    let mut pairs = Vec::new();
    for from in &senders {
        for to in receivers.iter().filter(|to| *to != from) {
            pairs.push(ping_pair(&*device, &mesh, (*from, *to), &payload, args)?);
        }
    }
    if pairs.is_empty() {
        return Err(
            Failure::usage(format!("{} has no other member to ping", args.from))
                .remedy("--to another member"),
        );
    }
    let mut table = Table::new(&[
        "FROM",
        "TO",
        ">SENT",
        ">ANSWERED",
        ">MIN",
        ">MEDIAN",
        ">MAX",
    ]);
    for pair in &pairs {
        let cell = |rtt: Option<u64>| rtt.map_or("-".into(), time);
        table.row([
            pair.from.clone(),
            pair.to.clone(),
            pair.sent.to_string(),
            pair.answered.to_string(),
            cell(pair.rtt_min_ns),
            cell(pair.rtt_median_ns),
            cell(pair.rtt_max_ns),
        ]);
    }
    output.line(&table.to_string())?;
    let silent = pairs.iter().find_map(|pair| {
        let error = pair.error.clone()?;
        Some(
            Failure::new(format!("{} to {}: {error}", pair.from, pair.to))
                .drive(pair.to.clone())
                .remedy(format!(
                    "csdctl mesh show --stats {}, csdctl drive list",
                    mesh.name()
                )),
        )
    });
    output.json(&PingReport {
        mesh: mesh.name(),
        payload_bytes: args.size,
        pairs,
    })?;
    silent.map_or(Ok(()), Err)
}

fn ping_pair(
    device: &dyn Device,
    mesh: &Mesh,
    (from, to): (u32, u32),
    payload: &[u8],
    args: &PingArgs,
) -> Outcome<PairReport> {
    let mut rtts = Vec::new();
    let mut error = None;
    let mut sent = 0;
    while sent < args.count && error.is_none() {
        sent += 1;
        let message = Message {
            mesh: mesh.info.mesh,
            from,
            to,
            opcode: CSD_MSG_PING,
            flags: 0,
            payload,
            timeout_ms: args.common.timeout_ms(),
        };
        match device.message(&message) {
            Ok(answer) if answer.payload == payload => rtts.push(answer.rtt_ns),
            Ok(_) => error = Some("the answer is not what was sent".to_string()),
            Err((Errno::EMSGSIZE, _)) => return Err(too_long(mesh, payload.len())),
            Err((Errno::EINTR, _)) => {
                return Err(Failure::new("interrupted").exit(Exit::Interrupted));
            }
            Err((errno, answer)) => error = Some(no_answer(errno, answer.status)),
        }
    }
    let mut sorted = rtts.clone();
    sorted.sort_unstable();
    Ok(PairReport {
        from: member_name(from),
        to: member_name(to),
        sent,
        answered: rtts.len() as u32,
        rtt_min_ns: sorted.first().copied(),
        rtt_median_ns: sorted.get(sorted.len() / 2).copied(),
        rtt_max_ns: sorted.last().copied(),
        rtts_ns: rtts,
        error,
    })
}

fn too_long(mesh: &Mesh, bytes: usize) -> Failure {
    Failure::usage(format!(
        "{bytes} bytes do not fit into the entries of {}: these have {} bytes, and 28 of them are taken",
        mesh.name(),
        mesh.info.entry_bytes
    ))
    .remedy("fewer bytes, or a mesh created with a larger --entry-size")
}

fn no_answer(errno: Errno, status: u32) -> String {
    match errno {
        Errno::ETIMEDOUT => "no answer (ETIMEDOUT)".into(),
        Errno::EAGAIN => "the ring stays full (EAGAIN)".into(),
        Errno::ENODEV => "it is lost (ENODEV)".into(),
        Errno::ECANCELED => "the mesh is being destroyed (ECANCELED)".into(),
        Errno::EIO => format!("refused with status {status:#05x} (EIO)"),
        _ => format!("{} ({errno:?})", errno.desc()),
    }
}

fn send(args: &SendArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let mesh = find_mesh(&*device, args.common.mesh.as_deref())?;
    let from = member(&*device, &mesh, &args.from)?;
    let to = member(&*device, &mesh, &args.to)?;
    if from == to {
        return Err(
            Failure::usage(format!("{} would send to itself", args.from))
                .remedy("another --from or --to"),
        );
    }
    if args.no_response && from != CSD_MEMBER_HOST {
        return Err(Failure::usage(format!(
            "{} reports how its message fared, which only a response tells",
            args.from
        ))
        .remedy("--from host, or without --no-response"));
    }
    let flags = if args.no_response {
        CSD_MSG_NO_RESPONSE
    } else {
        0
    };
    let payload = match (&args.hex, &args.text) {
        (Some(Payload(bytes)), _) => bytes.clone(),
        (None, text) => text.clone().unwrap_or_default().into_bytes(),
    };
    let message = Message {
        mesh: mesh.info.mesh,
        from,
        to,
        opcode: CSD_MSG_SEND,
        flags,
        payload: &payload,
        timeout_ms: args.common.timeout_ms(),
    };
    let answer = device
        .message(&message)
        .map_err(|(errno, answer)| match errno {
            Errno::EMSGSIZE => too_long(&mesh, payload.len()),
            _ => {
                let why = no_answer(errno, answer.status);
                let mut failure = Failure::errno("", errno)
                    .drive(member_name(to))
                    .remedy(format!(
                        "csdctl mesh show --stats {}, csdctl drive list",
                        mesh.name()
                    ));
                failure.message = format!("{} to {}: {why}", member_name(from), member_name(to));
                failure
            }
        })?;
    output.json(&SendReport {
        mesh: mesh.name(),
        from: member_name(from),
        to: member_name(to),
        bytes: payload.len(),
        rtt_ns: (!args.no_response).then_some(answer.rtt_ns),
    })
}

fn recv(args: &RecvArgs, world: &World<'_>, output: &mut Output<'_>) -> Outcome {
    let device = world.device()?;
    let mesh = find_mesh(&*device, args.mesh.as_deref())?;
    let at = member(&*device, &mesh, &args.at)?;
    let timeout_ms = match args.timeout {
        None => u32::MAX,
        Some(time) => u32::try_from(time.as_millis()).unwrap_or(u32::MAX - 1),
    };
    let received = device
        .receive(mesh.info.mesh, at, timeout_ms)
        .map_err(|errno| match errno {
            Errno::EAGAIN | Errno::ETIMEDOUT => {
                let what = format!("no message for {} in {}", member_name(at), mesh.name());
                let mut failure = Failure::new(what)
                    .exit(Exit::Timeout)
                    .remedy("a longer --timeout");
                failure.errno = Some(errno);
                failure
            }
            _ => Failure::errno(format!("{} in {}", member_name(at), mesh.name()), errno),
        })?;
    let printable = String::from_utf8(received.payload.clone())
        .ok()
        .filter(|text| !text.chars().any(char::is_control));
    let from = member_name(received.from);
    if received.dropped != 0 {
        output.note(&format!(
            "{} messages before this one were lost: the inbox was full",
            received.dropped
        ));
    }
    let shown = printable
        .clone()
        .unwrap_or_else(|| format!("hex {}", hex(&received.payload)));
    output.line(&format!("{from}: {shown}"))?;
    output.json(&RecvReport {
        mesh: mesh.name(),
        at: member_name(at),
        from,
        bytes: received.payload.len(),
        hex: hex(&received.payload),
        text: printable,
        dropped: received.dropped,
    })
}
