//! One coding, undone step by step. Each crate reports its end differently; here all do it alike.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, Operation};

/// Windows of zstd take no more than 8 MiB (RFC 9659); frames that want more are refused.
const LARGEST_WINDOW_LOG: u32 = 23;

/// The largest window of deflate, as a power of two.
const DEFLATE_WINDOW_LOG: u8 = 15;

/// The bytes are not what the coding says.
pub(super) struct Broken;

/// How far one step came.
pub(super) struct Step {
    pub(super) read: usize,
    pub(super) written: usize,
}

pub(super) struct Coding {
    kind: Kind,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing was read yet: a body that ends here is not whole.
    Start,
    Inside,
    /// At the end of a member, frame or stream.
    End,
}

enum Kind {
    Gzip(Decompress),
    /// Known only when the first byte is.
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
        Some(Coding { kind, place: Place::Start })
    }

    /// Whether a body may end here.
    pub(super) fn ended(&self) -> bool {
        self.place == Place::End
    }

    /// Reads and writes as much as it can at once.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, Broken> {
        let Some(&first) = input.first() else {
            // Asking again after the end would begin another frame.
            return match self.place {
                Place::Inside => self.advance(input, output),
                Place::Start | Place::End => Ok(Step { read: 0, written: 0 }),
            };
        };
        match (&mut self.kind, self.place) {
            // One member after another is one body.
            (Kind::Gzip(inflate), Place::End) => {
                *inflate = Decompress::new_gzip(DEFLATE_WINDOW_LOG);
            }
            (Kind::Deflate(inflate), Place::Start) => {
                *inflate = Some(Decompress::new(zlib_begins_with(first)));
            }
            (Kind::Deflate(_) | Kind::Brotli(_), Place::End) => return Err(Broken),
            _ => {}
        }
        self.place = Place::Inside;
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
            self.place = Place::End;
        }
        Ok(step)
    }
}

/// `deflate` means zlib, but some send it bare. No bare stream begins like this: it would be a
/// stored block with its padding set, and encoders leave that at zero.
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

/// The strict form knows no windows beyond 16 MiB.
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
