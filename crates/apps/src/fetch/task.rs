//! What a job carries: where to ask, and what the file is to be called.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::checksum::Checksum;
use crate::http;

/// Redirects that are followed for one file.
pub(super) const MOST_REDIRECTS: usize = 10;

/// The payload of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Mirrors, one stage each.
    pub(super) urls: Vec<String>,
    /// The file, below the directory.
    pub(super) target: String,
    /// How the target came to its name.
    #[serde(default)]
    pub(super) named: Named,
    /// Says which half file is this one's.
    pub(super) part: String,
    /// What its bytes must come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<Checksum>,
    /// The version that is there, for an answer only if there is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) have: Option<Version>,
    /// The length of the file that is there and is to be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) had: Option<u64>,
    /// It has to come in one piece: its server has ranges, but no name for its versions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unsplit: bool,
    /// The way so far: where it began, the last redirect and the address to ask; empty before the
    /// first redirect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) via: Vec<String>,
    /// Hashes of all addresses on the way, by which a loop is noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) seen: Vec<u64>,
    /// Before the file, the rules of its server, which keeps them elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) detour: Option<Detour>,
}

/// Where the rules of a server are, as far as its redirects have led.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Detour {
    pub(super) address: String,
    pub(super) redirects: usize,
}

/// How a target came to its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Named {
    /// Nothing had that name.
    #[default]
    New,
    /// What has that name is replaced.
    Replace,
    /// What has that name came from here, and is replaced.
    Renew,
    /// It may be called as the server says.
    ByServer,
}

/// What tells one version of a file from another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_modified: Option<String>,
}

/// What a finished job's call brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The address that answered, after all redirects.
    pub url: String,
    /// The file, below the directory.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// The server's name for this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// When it says that it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// What its bytes were found to come to, if that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// How it came.
    pub how: How,
}

impl Saved {
    /// A file that stood there complete.
    pub(super) fn standing(
        url: &Url,
        file: &str,
        bytes: u64,
        checksum: Option<&Checksum>,
    ) -> Saved {
        Saved {
            url: shown(url),
            file: file.to_string(),
            bytes,
            etag: None,
            last_modified: None,
            checksum: checksum.map(ToString::to_string),
            how: How::There,
        }
    }
}

/// How a file came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Fetched as a whole.
    Fetched,
    /// Fetched from where an earlier attempt had ended.
    Resumed,
    /// The server says that it has not changed.
    Unchanged,
    /// It stood there complete: the program was killed after naming it.
    There,
}

/// Why a redirect is not followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RedirectError {
    #[error("redirect loop: it leads back to `{0}`")]
    Loop(String),
    #[error("more than {MOST_REDIRECTS} redirects; the last led to `{0}`")]
    Many(String),
    #[error(transparent)]
    Address(#[from] http::RedirectError),
}

impl RedirectError {
    pub(super) fn class(&self) -> &'static str {
        match self {
            RedirectError::Loop(_) => "redirect_loop",
            RedirectError::Many(_) => "redirects",
            RedirectError::Address(_) => "redirect",
        }
    }
}

impl Task {
    /// The address that the call with this number asks.
    pub(super) fn url(&self, call: u16) -> Option<Url> {
        match &self.detour {
            Some(detour) => Url::parse(&detour.address).ok(),
            None => self.file_url(call),
        }
    }

    /// The address of the file that the call with this number is to fetch.
    pub(super) fn file_url(&self, call: u16) -> Option<Url> {
        let text = self.via.last().or_else(|| self.urls.get(usize::from(call)));
        text.and_then(|text| Url::parse(text).ok())
    }

    /// The task after a redirect from `from`; the address to ask is the last of its way.
    pub(super) fn redirected(
        &self,
        from: &Url,
        led_to: Result<Url, http::RedirectError>,
    ) -> Result<(Task, Url), RedirectError> {
        let to = led_to?;
        let mut task = self.clone();
        if task.seen.is_empty() {
            task.seen.push(hash(from));
        }
        if task.seen.contains(&hash(&to)) {
            return Err(RedirectError::Loop(shown(&to)));
        }
        if task.seen.len() > MOST_REDIRECTS {
            return Err(RedirectError::Many(shown(&to)));
        }
        task.seen.push(hash(&to));
        let first = task.via.first().cloned().unwrap_or_else(|| from.to_string());
        task.via = vec![first, from.to_string(), to.to_string()];
        Ok((task, to))
    }

    /// The address that the user named for the call with this number: secrets go to its server and
    /// to no other.
    pub(super) fn meant(&self, call: u16) -> Option<Url> {
        let text = self.via.first().or_else(|| self.urls.get(usize::from(call)));
        text.and_then(|text| Url::parse(text).ok())
    }

    /// The same task from the address that the user named, in one piece.
    pub(super) fn anew(&self, first: &Url) -> Task {
        Task { via: vec![first.to_string()], seen: Vec::new(), unsplit: true, ..self.clone() }
    }

    /// What an earlier run had saved, if this task was to replace it.
    pub(super) fn saved(&self) -> Option<Saved> {
        let Version { etag, last_modified } = self.have.clone().unwrap_or_default();
        let url = Url::parse(self.urls.first()?).ok()?;
        let standing = Saved::standing(&url, &self.target, self.had?, None);
        Some(Saved { etag, last_modified, ..standing })
    }

    /// The same task, to be asked again at `url` by another call.
    pub(super) fn again(&self, url: &Url) -> Task {
        let mut task = self.clone();
        if task.via.is_empty() {
            task.via.push(url.to_string());
        }
        task
    }
}

/// A hash that is the same in every run.
fn hash(url: &Url) -> u64 {
    let digest = Sha256::digest(url.as_str());
    u64::from_le_bytes(*digest.first_chunk().expect("a SHA-256 has 32 bytes"))
}

/// An address as people may see it: without the login that it may carry.
pub(super) fn shown(url: &Url) -> String {
    if url.username().is_empty() && url.password().is_none() {
        return url.to_string();
    }
    let mut url = url.clone();
    // Only addresses without a host refuse this, and they have no login either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            urls: vec!["http://a/1".to_string(), "http://b/2".to_string()],
            target: "x".to_string(),
            named: Named::New,
            part: "0".to_string(),
            checksum: None,
            have: None,
            had: None,
            unsplit: false,
            via: Vec::new(),
            seen: Vec::new(),
            detour: None,
        }
    }

    fn url(text: &str) -> Url {
        Url::parse(text).expect("an address")
    }

    #[test]
    fn each_stage_asks_its_own_mirror_and_a_redirect_its_own_address() {
        let task = task();
        let from = task.url(1).expect("the second mirror");
        assert_eq!(from.as_str(), "http://b/2");
        let (moved, to) = task.redirected(&from, Ok(url("http://b/c?d"))).expect("it leads on");
        assert_eq!(to.as_str(), "http://b/c?d");
        assert_eq!(moved.url(7), Some(to));
    }

    #[test]
    fn a_loop_is_named_and_a_chain_has_an_end() {
        let (mut task, mut at) = (task(), url("http://a/1"));
        for n in 2..12 {
            (task, at) = task.redirected(&at, Ok(url(&format!("http://a/{n}")))).expect("one more");
        }
        let looped = task.redirected(&at, Ok(url("http://a/4"))).expect_err("a loop");
        assert_eq!(looped, RedirectError::Loop("http://a/4".to_string()));
        let many = task.redirected(&at, Ok(url("http://a/99"))).expect_err("too many");
        assert_eq!(many, RedirectError::Many("http://a/99".to_string()));
        let nowhere = task.redirected(&at, Err(http::RedirectError::Nowhere));
        assert_eq!(nowhere.expect_err("no address").class(), "redirect");
    }

    #[test]
    fn a_login_is_not_shown() {
        let url = Url::parse("http://user:secret@a/b").expect("an address");
        assert_eq!(shown(&url), "http://a/b");
    }
}
