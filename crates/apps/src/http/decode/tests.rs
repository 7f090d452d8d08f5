//! Round trips, cuts at every byte, and bombs.

use super::*;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

const PLENTY: u64 = 1 << 30;

fn encoded(coding: &str, plain: &[u8]) -> Vec<u8> {
    let level = Compression::new(6);
    match coding {
        "gzip" | "X-GZIP" => {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(plain).expect("memory");
            encoder.finish().expect("memory")
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(plain).expect("memory");
            encoder.finish().expect("memory")
        }
        "bare" => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(plain).expect("memory");
            encoder.finish().expect("memory")
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4_096, 5, 22);
            encoder.write_all(plain).expect("memory");
            encoder.into_inner()
        }
        "zstd" => zstd::encode_all(plain, 3).expect("memory"),
        _ => plain.to_vec(),
    }
}

/// The header's name for a coding of these tests.
fn name(coding: &str) -> &str {
    if coding == "bare" { "deflate" } else { coding }
}

const CODINGS: [&str; 6] = ["gzip", "X-GZIP", "deflate", "bare", "br", "zstd"];

fn decoded(codings: &str, body: &[u8], sip: usize) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = Decoder::new(codings, PLENTY)?;
    let mut out = Vec::new();
    for piece in body.chunks(sip) {
        decoder.push(piece, &mut out)?;
    }
    decoder.finish().map(|()| out)
}

#[track_caller]
fn check(codings: &str, body: &[u8], plain: &[u8]) {
    for sip in [1, 7, 4_096, usize::MAX] {
        let decoded = decoded(codings, body, sip).expect("a whole body");
        assert!(decoded == plain, "{codings} in pieces of {sip}");
    }
}

fn text() -> Vec<u8> {
    let words = (0..20_000u32).map(|number| format!("{} ", number.wrapping_mul(2_654_435_761)));
    words.collect::<String>().into_bytes()
}

#[test]
fn what_was_encoded_decodes() {
    for plain in [b"".to_vec(), b"x".to_vec(), text(), vec![0; 1 << 20]] {
        for coding in CODINGS {
            check(name(coding), &encoded(coding, &plain), &plain);
        }
        check("identity", &plain, &plain);
        check("", &plain, &plain);
        let twice = encoded("br", &encoded("gzip", &plain));
        check("gzip, identity ,BR", &twice, &plain);
        let thrice = encoded("zstd", &encoded("gzip", &encoded("deflate", &plain)));
        check("deflate,gzip,zstd", &thrice, &plain);
    }
}

#[test]
fn members_and_frames_one_after_another_are_one_body() {
    for coding in ["gzip", "zstd"] {
        let mut body = encoded(coding, b"one ");
        body.extend(encoded(coding, b""));
        body.extend(encoded(coding, b"two"));
        check(coding, &body, b"one two");
        body.truncate(body.len() - 1);
        assert!(matches!(decoded(coding, &body, 5), Err(DecodeError::Truncated)));
    }
}

#[test]
fn a_body_cut_anywhere_is_never_taken_for_whole() {
    let plain = b"the quick brown fox jumps over the lazy dog, the quick brown fox again";
    let nested = encoded("br", &encoded("gzip", plain));
    let bodies = CODINGS.map(|coding| (name(coding), encoded(coding, plain)));
    for (coding, body) in bodies.iter().chain(&[("gzip, br", nested)]) {
        for end in 0..body.len() {
            for sip in [1, usize::MAX] {
                let result = decoded(coding, &body[..end], sip);
                let noticed = matches!(result, Err(DecodeError::Truncated | DecodeError::Corrupt));
                assert!(noticed, "{coding} cut at {end}: {result:?}");
            }
        }
    }
}

#[test]
fn damaged_bodies_and_trailing_bytes_are_errors() {
    for coding in CODINGS {
        let mut body = encoded(coding, &text());
        body.push(b'x');
        for sip in [1, usize::MAX] {
            let result = decoded(name(coding), &body, sip);
            // One byte may still become the start of another frame.
            let noticed = matches!(result, Err(DecodeError::Corrupt | DecodeError::Truncated));
            assert!(noticed, "{coding}");
        }
        body.extend(b"yzxyz");
        let result = decoded(name(coding), &body, usize::MAX);
        assert!(matches!(result, Err(DecodeError::Corrupt)), "{coding}: {:?}", result.err());
        assert!(matches!(
            decoded(name(coding), b"\xff\xff\xff\xff not a body", 3),
            Err(DecodeError::Corrupt)
        ));
    }
    for coding in ["gzip", "deflate"] {
        let mut body = encoded(coding, &text());
        let checksum = body.len() - 6;
        body[checksum + 2] ^= 1;
        assert!(matches!(decoded(coding, &body, 99), Err(DecodeError::Corrupt)), "{coding}");
    }
}

#[track_caller]
fn check_refused(codings: &str, told: &str) {
    let error = Decoder::new(codings, 1).err().expect("a mistake");
    assert_eq!(error.to_string(), told);
}

#[test]
fn codings_that_are_not_known_are_named() {
    check_refused("gzip, compress", "unknown content coding `compress`: fetch without `--decode`");
    check_refused("gzip;q=1", "unknown content coding `gzip;q=1`: fetch without `--decode`");
    let long = "x".repeat(1_000);
    let shown = &long[..40];
    check_refused(&long, &format!("unknown content coding `{shown}`: fetch without `--decode`"));
    let many = "the body has more than 3 codings: fetch without `--decode`";
    check_refused("gzip,gzip,gzip,gzip", many);
    check_refused(&"identity,".repeat(1_000_000), many);
}

/// A place that only counts, and checks the pieces.
#[derive(Default)]
struct Count(u64);

impl Write for Count {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        assert!(piece.len() <= LARGEST_PIECE, "a piece of {}", piece.len());
        self.0 += piece.len() as u64;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn no_more_is_written_than_was_asked_for() {
    let plain = text();
    let length = plain.len() as u64;
    for coding in CODINGS.into_iter().chain(["identity"]) {
        let body = encoded(coding, &plain);
        for (most, fits) in [(length, true), (length - 1, false), (0, false), (u64::MAX, true)] {
            let mut decoder = Decoder::new(name(coding), most).expect("known");
            let mut out = Count::default();
            let result = decoder.push(&body, &mut out);
            assert!(out.0 <= most, "{coding}");
            match result {
                Ok(()) => assert!(fits && out.0 == length, "{coding}"),
                Err(DecodeError::TooLarge { most: told }) => assert!(!fits && told == most),
                Err(error) => panic!("{coding}: {error}"),
            }
        }
    }
}

/// Ten GiB of zeros: the beginning, the part that repeats, and the number of repetitions.
fn bomb(coding: &str) -> (Vec<u8>, Vec<u8>, usize) {
    const ZEROS: usize = 16 << 20;
    const TIMES: usize = 640;
    let zeros = vec![0; ZEROS];
    match coding {
        "zstd" => (Vec::new(), encoded("zstd", &zeros), TIMES),
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4_096, 5, 22);
            let mut ends = Vec::new();
            for _ in 0..2 {
                encoder.write_all(&zeros).expect("memory");
                encoder.flush().expect("memory");
                ends.push(encoder.get_ref().len());
            }
            let body = encoder.into_inner();
            (body[..ends[0]].to_vec(), body[ends[0]..ends[1]].to_vec(), TIMES)
        }
        _ => {
            let mut encoder = flate2::Compress::new(Compression::best(), false);
            let mut block = Vec::with_capacity(ZEROS / 500);
            let flush = flate2::FlushCompress::Full;
            encoder.compress_vec(&zeros, &mut block, flush).expect("memory");
            let start: &[u8] = match coding {
                "gzip" => b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
                "deflate" => b"\x78\x9c",
                _ => b"",
            };
            (start.to_vec(), block, TIMES)
        }
    }
}

/// The bytes of output before a bomb is refused, and the error.
fn explode(codings: &str, bomb: (Vec<u8>, Vec<u8>, usize), most: u64) -> (u64, DecodeError) {
    let (start, repeated, times) = bomb;
    let mut decoder = Decoder::new(codings, most).expect("known");
    let mut out = Count::default();
    let mut result = decoder.push(&start, &mut out);
    for _ in 0..times {
        result = result.and_then(|()| decoder.push(&repeated, &mut out));
    }
    (out.0, result.expect_err("a bomb is refused"))
}

#[test]
fn bombs_are_refused_early_whatever_their_coding() {
    for coding in ["gzip", "deflate", "bare", "br", "zstd"] {
        let (written, error) = explode(name(coding), bomb(coding), u64::MAX);
        assert!(matches!(error, DecodeError::Bomb), "{coding}: {error}");
        assert!(written <= FREE_OUTPUT + SIP as u64 * HIGHEST_RATIO, "{coding}: {written}");
        let (written, error) = explode(name(coding), bomb(coding), 1 << 20);
        assert!(matches!(error, DecodeError::TooLarge { most: 1_048_576 }), "{coding}: {error}");
        assert!(written <= 1 << 20, "{coding}: {written}");
    }
}

#[test]
fn a_bomb_inside_a_bomb_is_refused_even_if_nothing_comes_out() {
    let (start, repeated, _) = bomb("gzip");
    let nested = encoded("zstd", &[start, repeated.repeat(40)].concat());
    let (written, error) = explode("gzip, zstd", (nested, Vec::new(), 0), u64::MAX);
    assert!(matches!(error, DecodeError::Bomb), "{error}");
    assert!(written <= FREE_OUTPUT + SIP as u64 * HIGHEST_RATIO, "{written}");
    // Frames that zstd skips, filled with nothing: all work, no output.
    let skipped = [&b"\x50\x2a\x4d\x18"[..], &(512u32 << 20).to_le_bytes()].concat();
    let (_, zeros, times) = bomb("bare");
    let mut encoder = flate2::Compress::new(Compression::best(), false);
    let mut start = Vec::with_capacity(100);
    encoder.compress_vec(&skipped, &mut start, flate2::FlushCompress::Full).expect("memory");
    let (written, error) = explode("zstd, deflate", (start, zeros, times), u64::MAX);
    assert!(matches!(error, DecodeError::Bomb), "{error}");
    assert_eq!(written, 0);
}

#[test]
fn a_window_beyond_the_bound_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    encoder.window_log(24).expect("a window of 16 MiB");
    encoder.write_all(b"x").expect("memory");
    encoder.flush().expect("memory");
    encoder.write_all(b"y").expect("memory");
    let body = encoder.finish().expect("memory");
    assert!(matches!(decoded("zstd", &body, 1), Err(DecodeError::Corrupt)));
    // A large window of brotli: the first byte says so.
    assert!(matches!(decoded("br", b"\x11\x1e\0\0\0\0", 1), Err(DecodeError::Corrupt)));
}

#[test]
fn a_full_disk_has_a_class_of_its_own() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut decoder = Decoder::new("gzip", PLENTY).expect("known");
    let result = decoder.push(&encoded("gzip", b"x"), &mut Full);
    assert!(matches!(result, Err(DecodeError::Out(_))));
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(
        coding in prop::sample::select(&CODINGS[..]),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        sip in 1..50usize,
    ) {
        let mut out = Count::default();
        let mut decoder = Decoder::new(name(coding), 10_000).expect("known");
        let pushed = bytes.chunks(sip).try_for_each(|piece| decoder.push(piece, &mut out));
        prop_assert!(out.0 <= 10_000);
        if pushed.is_ok() {
            let _ = decoder.finish();
        }
    }

    #[test]
    fn damage_is_noticed_where_there_is_a_checksum(
        plain in prop::collection::vec(any::<u8>(), 0..300),
        place in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut body = encoded("gzip", &plain);
        // The header's moment and system say nothing about the content.
        let place = 10 + place.index(body.len() - 10);
        body[place] ^= flip;
        // A flipped bit of padding changes nothing.
        prop_assert!(decoded("gzip", &body, 64).map_or(true, |decoded| decoded == plain));
    }
}
