//! Decoding of content codings, within bounds.

use std::io::{self, Write};

mod coding;

use coding::{Broken, Coding};

/// The most codings of one body.
pub const MOST_CODINGS: usize = 3;

/// The largest piece that is written at once, and so the buffer of each coding beside its window.
pub const LARGEST_PIECE: usize = 64 << 10;

/// Beyond [`FREE_OUTPUT`], output of more than this many times the input is refused as a
/// decompression bomb.
pub const HIGHEST_RATIO: u64 = 1_000;

/// Output that is allowed at any ratio: small bodies of repeated bytes are legitimate.
pub const FREE_OUTPUT: u64 = 16 << 20;

/// Input between two checks of the ratio.
const SIP: usize = 16 << 10;

/// Decodes a body, piece by piece. After an error it cannot be used any more.
pub struct Decoder {
    /// In the order of decoding.
    stages: Vec<Stage>,
    gauge: Gauge,
}

/// An error of decoding.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// An unknown coding.
    #[error("unknown content coding `{coding}`: fetch without `--decode`")]
    Unknown {
        /// Its name, shortened.
        coding: String,
    },
    /// Too many codings.
    #[error("the body has more than 3 codings: fetch without `--decode`")]
    Many,
    /// The decoded body is too large.
    #[error("the decoded body is larger than {most} bytes")]
    TooLarge {
        /// The bound.
        most: u64,
    },
    /// The body expands too much.
    #[error("the decoded body is more than 1000 times larger than the compressed one")]
    Bomb,
    /// The end is missing.
    #[error("the compressed body is truncated")]
    Truncated,
    /// The body is damaged, or in another coding.
    #[error("the compressed body is damaged, or in another coding")]
    Corrupt,
    /// The decoded bytes cannot be written.
    #[error("the decoded body cannot be written")]
    Out(#[source] io::Error),
}

impl From<Broken> for DecodeError {
    fn from(_: Broken) -> DecodeError {
        DecodeError::Corrupt
    }
}

impl Decoder {
    /// A decoder for the value of a `Content-Encoding` header, for at most `most` decoded bytes.
    pub fn new(codings: &str, most: u64) -> Result<Decoder, DecodeError> {
        let names = codings.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: Vec<&str> = names.take(MOST_CODINGS + 1).collect();
        if names.len() > MOST_CODINGS {
            return Err(DecodeError::Many);
        }
        let mut stages = Vec::new();
        for name in names.into_iter().rev() {
            if !name.eq_ignore_ascii_case("identity") {
                let shown = || name.chars().take(40).flat_map(char::escape_debug).collect();
                let coding = Coding::named(name);
                let coding = coding.ok_or_else(|| DecodeError::Unknown { coding: shown() })?;
                let piece = vec![0; LARGEST_PIECE].into_boxed_slice();
                stages.push(Stage { coding, piece, put_out: 0 });
            }
        }
        Ok(Decoder { stages, gauge: Gauge { taken_in: 0, written: 0, most } })
    }

    /// Takes bytes of the body and writes all that they decode to, in pieces.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl Write) -> Result<(), DecodeError> {
        for sip in bytes.chunks(SIP) {
            self.gauge.taken_in += sip.len() as u64;
            run(&mut self.stages, sip, &mut self.gauge, out)?;
        }
        Ok(())
    }

    /// Returns `true` if no byte has come so far.
    pub fn is_fresh(&self) -> bool {
        self.gauge.taken_in == 0
    }

    /// The body is over. Nothing is left to be written; the question is whether it was whole.
    ///
    /// A body of no bytes at all is not whole, except without any coding.
    pub fn finish(self) -> Result<(), DecodeError> {
        let whole = self.stages.iter().all(|stage| stage.coding.ended());
        if whole { Ok(()) } else { Err(DecodeError::Truncated) }
    }
}

struct Stage {
    coding: Coding,
    piece: Box<[u8]>,
    put_out: u64,
}

/// Bytes of input and output so far.
struct Gauge {
    taken_in: u64,
    written: u64,
    most: u64,
}

impl Gauge {
    /// Holds for every stage: what lies between two codings costs time even if little comes out.
    fn check(&self, put_out: u64) -> Result<(), DecodeError> {
        let bomb = put_out > FREE_OUTPUT.max(self.taken_in.saturating_mul(HIGHEST_RATIO));
        if bomb { Err(DecodeError::Bomb) } else { Ok(()) }
    }

    fn write(&mut self, piece: &[u8], out: &mut impl Write) -> Result<(), DecodeError> {
        self.written += piece.len() as u64;
        if self.written > self.most {
            return Err(DecodeError::TooLarge { most: self.most });
        }
        out.write_all(piece).map_err(DecodeError::Out)
    }
}

/// Sends bytes through the stages; each hands on what it has before it takes more.
fn run(
    stages: &mut [Stage],
    mut bytes: &[u8],
    gauge: &mut Gauge,
    out: &mut impl Write,
) -> Result<(), DecodeError> {
    let Some((stage, rest)) = stages.split_first_mut() else { return gauge.write(bytes, out) };
    loop {
        let step = stage.coding.step(bytes, &mut stage.piece)?;
        bytes = &bytes[step.read..];
        if step.written > 0 {
            stage.put_out += step.written as u64;
            gauge.check(stage.put_out)?;
            run(rest, &stage.piece[..step.written], gauge, out)?;
        } else if step.read == 0 && !bytes.is_empty() {
            return Err(DecodeError::Corrupt);
        }
        // A full piece may have left something behind in the coding.
        if bytes.is_empty() && step.written < stage.piece.len() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
