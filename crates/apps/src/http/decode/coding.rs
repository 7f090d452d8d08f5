//! One coding, decoded step by step. The crates report the end differently; here it is uniform.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, Operation};

/// Windows of zstd take no more than 8 MiB (RFC 9659); frames that want more are refused.
const LARGEST_WINDOW_LOG: u32 = 23;

/// The largest window of deflate, as a power of two.
const DEFLATE_WINDOW_LOG: u8 = 15;

/// The bytes are invalid in this coding.
pub(super) struct Broken;

/// The progress of one step.
pub(super) struct Step {
    pub(super) read: usize,
    pub(super) written: usize,
}

pub(super) struct Coding {
    kind: Kind,
    position: Position,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// No byte was read: a body that ends here is incomplete.
    Start,
    Inside,
    /// At the end of a member, frame or stream.
    End,
}

enum Kind {
    Gzip(Decompress),
    /// Determined by the first byte.
    Deflate(Option<Decompress>),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(Decoder<'static>),
}

impl Coding {
    /// The coding of this name, in any case.
    pub(super) fn named(name: &str) -> Option<Coding> {
        let kind = match &name.to_ascii_lowercase()[..] {
            "gzip" | "x-gzip" => Kind::Gzip(Decompress::new_gzip(DEFLATE_WINDOW_LOG)),
            "deflate" => Kind::Deflate(None),
            "br" => Kind::Brotli(Box::new(brotli())),
            "zstd" => Kind::Zstd(zstd()),
            _ => return None,
        };
        Some(Coding { kind, position: Position::Start })
    }

    /// Returns `true` if a body may end here.
    pub(super) fn ended(&self) -> bool {
        self.position == Position::End
    }

    /// Reads and writes as much as it can at once.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Broken> {
        let Some(&first) = input.first() else {
            // Another call after the end would begin another frame.
            return match self.position {
                Position::Inside => self.advance(input, output),
                Position::Start | Position::End => Ok(Step { read: 0, written: 0 }),
            };
        };
        match (&mut self.kind, self.position) {
            // Several members form one body.
            (Kind::Gzip(inflate), Position::End) => {
                *inflate = Decompress::new_gzip(DEFLATE_WINDOW_LOG);
            }
            (Kind::Deflate(inflate), Position::Start) => {
                *inflate = Some(Decompress::new(zlib_begins_with(first)));
            }
            (Kind::Deflate(_) | Kind::Brotli(_), Position::End) => return Err(Broken),
            _ => {}
        }
        self.position = Position::Inside;
        self.advance(input, output)
    }

    fn advance(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Broken> {
        let (step, end) = match &mut self.kind {
            Kind::Gzip(inflate) => inflated(inflate, input, output)?,
            Kind::Deflate(inflate) => {
                inflated(inflate.as_mut().expect("the first byte chose it"), input, output)?
            }
            Kind::Brotli(state) => unbrotlied(state, input, output)?,
            Kind::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, output).map_err(|_| Broken)?;
                let step = Step { read: status.bytes_read, written: status.bytes_written };
                (step, status.remaining == 0)
            }
        };
        if end {
            self.position = Position::End;
        }
        Ok(step)
    }
}

/// `deflate` means zlib, but some servers send raw deflate. No raw stream begins like this: it
/// would be a stored block with padding bits set, which encoders leave at zero.
fn zlib_begins_with(first: u8) -> bool {
    first & 0x0f == 8
}

fn inflated(
    inflate: &mut Decompress,
    input: &[u8],
    output: &mut [u8],
) -> Result<(Step, bool), Broken> {
    let before = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, output, FlushDecompress::None).map_err(|_| Broken)?;
    let read = (inflate.total_in() - before.0) as usize;
    let written = (inflate.total_out() - before.1) as usize;
    Ok((Step { read, written }, status == Status::StreamEnd))
}

fn unbrotlied(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    input: &[u8],
    output: &mut [u8],
) -> Result<(Step, bool), Broken> {
    let (mut unread, mut read) = (input.len(), 0);
    let (mut room, mut written, mut total) = (output.len(), 0, 0);
    let result = BrotliDecompressStream(
        &mut unread,
        &mut read,
        input,
        &mut room,
        &mut written,
        output,
        &mut total,
        state,
    );
    match result {
        BrotliResult::ResultFailure => Err(Broken),
        BrotliResult::ResultSuccess => Ok((Step { read, written }, true)),
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {
            Ok((Step { read, written }, false))
        }
    }
}

/// Without large windows, which exceed 16 MiB.
fn brotli() -> BrotliState<StandardAlloc, StandardAlloc, StandardAlloc> {
    BrotliState::new_strict(
        StandardAlloc::default(),
        StandardAlloc::default(),
        StandardAlloc::default(),
    )
}

fn zstd() -> Decoder<'static> {
    let mut decoder = Decoder::new().expect("memory for a decoder");
    let bound = decoder.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW_LOG));
    bound.expect("zstd takes windows up to 2^31");
    decoder
}
