//! Checksums, and hashers to verify them.

use std::fmt;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use md5::Md5;
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use thiserror::Error;

use super::name::shown;

/// The expected checksum of a file; read and written as `sha-256=HEX`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Checksum {
    algorithm: Algorithm,
    /// As long as the algorithm says.
    digest: Vec<u8>,
}

/// The algorithms of checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// 32 digits. Detects accidents, not attacks.
    Md5,
    /// 40 digits. Detects accidents, not attacks.
    Sha1,
    /// 56 digits.
    Sha224,
    /// 64 digits.
    Sha256,
    /// 96 digits.
    Sha384,
    /// 128 digits.
    Sha512,
}

/// An invalid checksum.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChecksumError {
    /// There is no `=` or `:`.
    #[error("`{0}` is not a checksum: write `sha-256=HEX`")]
    Form(String),
    /// The algorithm is not supported.
    #[error("no checksum named `{0}`: use md5, sha-1, sha-224, sha-256, sha-384 or sha-512")]
    Algorithm(String),
    /// The number of digits does not match the algorithm.
    #[error("`{algorithm}` has {} hex digits, not {found}", .algorithm.digits())]
    Length {
        /// The algorithm that was named.
        algorithm: Algorithm,
        /// The number of characters.
        found: usize,
    },
    /// No algorithm has this number of digits.
    #[error("no checksum algorithm has {0} hex digits: expected 32, 40, 56, 64, 96 or 128")]
    Unknown(usize),
    /// One of the characters is not among `0` to `9` and `a` to `f`.
    #[error("`{0}` is not made of hex digits: copy the checksum again, base64 is not read")]
    Digits(String),
}

impl Checksum {
    /// A checksum from hex digits and an algorithm.
    pub fn from_hex(algorithm: Algorithm, hex: &str) -> Result<Checksum, ChecksumError> {
        let found = hex.chars().count();
        if found != algorithm.digits() {
            return Err(ChecksumError::Length { algorithm, found });
        }
        let digest = HEXLOWER_PERMISSIVE.decode(hex.as_bytes());
        let digest = digest.map_err(|_| ChecksumError::Digits(shown(hex)))?;
        Ok(Checksum { algorithm, digest })
    }

    /// A checksum from hex digits alone. Their number determines the algorithm.
    pub fn from_bare_hex(hex: &str) -> Result<Checksum, ChecksumError> {
        let digits = hex.chars().count();
        let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.digits() == digits);
        Checksum::from_hex(algorithm.ok_or(ChecksumError::Unknown(digits))?, hex)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns `true` if this digest, of the same algorithm, matches.
    pub fn matches(&self, digest: &[u8]) -> bool {
        self.digest == digest
    }
}

impl FromStr for Checksum {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Checksum, ChecksumError> {
        let text = text.trim();
        let form = || ChecksumError::Form(shown(text));
        let (name, hex) = text.split_once(['=', ':']).ok_or_else(form)?;
        Checksum::from_hex(name.parse()?, hex)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.algorithm, HEXLOWER.encode(&self.digest))
    }
}

impl TryFrom<String> for Checksum {
    type Error = ChecksumError;

    fn try_from(text: String) -> Result<Checksum, ChecksumError> {
        text.parse()
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> String {
        checksum.to_string()
    }
}

impl Algorithm {
    /// All algorithms, the shortest first.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::Md5,
        Algorithm::Sha1,
        Algorithm::Sha224,
        Algorithm::Sha256,
        Algorithm::Sha384,
        Algorithm::Sha512,
    ];

    /// The number of hex digits of its checksums.
    pub fn digits(self) -> usize {
        match self {
            Algorithm::Md5 => 32,
            Algorithm::Sha1 => 40,
            Algorithm::Sha224 => 56,
            Algorithm::Sha256 => 64,
            Algorithm::Sha384 => 96,
            Algorithm::Sha512 => 128,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Algorithm::Md5 => "md5",
            Algorithm::Sha1 => "sha-1",
            Algorithm::Sha224 => "sha-224",
            Algorithm::Sha256 => "sha-256",
            Algorithm::Sha384 => "sha-384",
            Algorithm::Sha512 => "sha-512",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Takes the names with and without hyphens, in any case.
impl FromStr for Algorithm {
    type Err = ChecksumError;

    fn from_str(text: &str) -> Result<Algorithm, ChecksumError> {
        // openssl also writes `SHA2-256`.
        let bare =
            |name: &str| name.trim().to_ascii_lowercase().replace("sha2-", "sha").replace('-', "");
        let asked = bare(text);
        let found = Algorithm::ALL.into_iter().find(|algorithm| bare(algorithm.name()) == asked);
        found.ok_or_else(|| ChecksumError::Algorithm(shown(text.trim())))
    }
}

/// Computes a digest.
pub struct Hasher(Box<dyn DynDigest + Send + Sync>);

impl Hasher {
    /// A hasher without input.
    pub fn new(algorithm: Algorithm) -> Hasher {
        Hasher(match algorithm {
            Algorithm::Md5 => Box::new(Md5::default()),
            Algorithm::Sha1 => Box::new(Sha1::default()),
            Algorithm::Sha224 => Box::new(Sha224::default()),
            Algorithm::Sha256 => Box::new(Sha256::default()),
            Algorithm::Sha384 => Box::new(Sha384::default()),
            Algorithm::Sha512 => Box::new(Sha512::default()),
        })
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(mut self) -> Vec<u8> {
        self.0.finalize_reset().into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ABC_SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = text.parse::<Checksum>();
        assert_eq!(found.map_or_else(|e| e.to_string(), |c| c.to_string()), expected, "{text}");
    }

    #[test]
    fn checksums_are_read_in_the_forms_that_people_use() {
        let plain = format!("sha-256={ABC_SHA256}");
        check(&plain, &plain);
        check(&format!(" sha256:{ABC_SHA256}\n"), &plain);
        check(&format!("sha256={ABC_SHA256}"), &plain);
        check(&plain.to_uppercase(), &plain);
        check(&format!("MD5={}", "0F".repeat(16)), &format!("md5={}", "0f".repeat(16)));
        for algorithm in Algorithm::ALL {
            let plain = format!("{algorithm}={}", "7".repeat(algorithm.digits()));
            check(&plain, &plain);
        }
    }

    #[test]
    fn invalid_checksums_are_explained() {
        check("abc", "`abc` is not a checksum: write `sha-256=HEX`");
        check("", "`` is not a checksum: write `sha-256=HEX`");
        check("sha-256=abc", "`sha-256` has 64 hex digits, not 3");
        check("md5:", "`md5` has 32 hex digits, not 0");
        check(
            "crc32=00000000",
            "no checksum named `crc32`: use md5, sha-1, sha-224, sha-256, sha-384 or sha-512",
        );
        let text = "g".repeat(40);
        check(
            &format!("sha1={text}"),
            &format!(
                "`{text}` is not made of hex digits: copy the checksum again, base64 is not read"
            ),
        );
    }

    #[test]
    fn the_number_of_digits_tells_the_algorithm() {
        for algorithm in Algorithm::ALL {
            let found = Checksum::from_bare_hex(&"a".repeat(algorithm.digits()));
            assert_eq!(found.map(|checksum| checksum.algorithm()), Ok(algorithm));
        }
        assert_eq!(Checksum::from_bare_hex("ab"), Err(ChecksumError::Unknown(2)));
    }

    #[test]
    fn digests_are_the_published_ones() {
        let published = [
            "md5=900150983cd24fb0d6963f7d28e17f72",
            "sha-1=a9993e364706816aba3e25717850c26c9cd0d89d",
            "sha-224=23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
            "sha-256=ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "sha-384=cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed\
             8086072ba1e7cc2358baeca134c825a7",
            "sha-512=ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ];
        for text in published {
            let checksum: Checksum = text.parse().expect("a checksum");
            let mut hasher = Hasher::new(checksum.algorithm());
            hasher.update(b"a");
            hasher.update(b"bc");
            let mut digest = hasher.finish();
            assert!(checksum.matches(&digest), "{text}");
            let last = digest.pop().expect("a digest has bytes");
            assert!(!checksum.matches(&digest), "{text}");
            digest.push(last ^ 1);
            assert!(!checksum.matches(&digest), "{text}");
        }
    }

    #[test]
    fn a_checksum_is_stored_as_its_text() {
        let text = format!("\"sha-256={ABC_SHA256}\"");
        let checksum: Checksum = serde_json::from_str(&text).expect("a checksum");
        assert_eq!(serde_json::to_string(&checksum).expect("text"), text);
        let error = serde_json::from_str::<Checksum>("\"md5=1\"").expect_err("too short");
        assert_eq!(error.to_string(), "`md5` has 32 hex digits, not 1");
    }

    proptest! {
        #[test]
        fn any_text_is_a_checksum_or_an_error(
            text in "\\PC{0,60}|(md5|sha-?1)[:=][0-9a-fA-F]{31,41}",
        ) {
            if let Ok(checksum) = text.parse::<Checksum>() {
                prop_assert_eq!(checksum.to_string().parse(), Ok(checksum));
            }
        }
    }
}
