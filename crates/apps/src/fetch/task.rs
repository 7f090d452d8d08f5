//! Tasks: the payload of a job, with the URLs and the target of a file.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::checksum::Checksum;
use crate::http;

/// Redirects per file at most.
pub(super) const MOST_REDIRECTS: usize = 10;

/// The payload of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Mirrors, one stage each.
    pub(super) urls: Vec<String>,
    /// The file, below the directory.
    pub(super) target: String,
    /// How the target got its name.
    #[serde(default)]
    pub(super) named: Named,
    /// Identifies the partial file.
    pub(super) part: String,
    /// The checksum that its bytes must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<Checksum>,
    /// The existing version, for a conditional request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) have: Option<Version>,
    /// The length of the existing file that will be replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) had: Option<u64>,
    /// It has to come in one piece: its server supports ranges, but gives no reliable validator.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unsplit: bool,
    /// The redirects so far: the first URL, the one of the last redirect, and the URL to fetch;
    /// empty before the first redirect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) via: Vec<String>,
    /// Hashes of all URLs on the way, to detect loops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) seen: Vec<u64>,
    /// Rules of the server to fetch from another URL, before the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) detour: Option<Detour>,
}

/// The URL of a server's rules, after the redirects so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Detour {
    pub(super) address: String,
    pub(super) redirects: usize,
}

/// How a target got its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Named {
    /// The name was free.
    #[default]
    New,
    /// The file with that name is replaced.
    Replace,
    /// The file with that name came from the same URLs, and is replaced.
    Renew,
    /// The server's name may be used.
    ByServer,
}

/// The validators of a version of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_modified: Option<String>,
}

/// A saved file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Its URL, after all redirects.
    pub url: String,
    /// The file, below the directory.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// The `ETag` of this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The `Last-Modified` of this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// The checksum of its bytes, if it was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// How it was saved.
    pub how: How,
}

impl Saved {
    /// A file that was already complete.
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

/// How a file was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Fetched as a whole.
    Fetched,
    /// Resumed where an earlier attempt ended.
    Resumed,
    /// The server says that it has not changed.
    Unchanged,
    /// It was already complete: the program was killed after naming it.
    There,
}

/// A redirect that is not followed.
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
    /// The URL to fetch for the call with this number.
    pub(super) fn url(&self, call: u16) -> Option<Url> {
        match &self.detour {
            Some(detour) => Url::parse(&detour.address).ok(),
            None => self.file_url(call),
        }
    }

    /// The URL of the file for the call with this number.
    pub(super) fn file_url(&self, call: u16) -> Option<Url> {
        let text = self.via.last().or_else(|| self.urls.get(usize::from(call)));
        text.and_then(|text| Url::parse(text).ok())
    }

    /// The task after a redirect from `from`, and the URL to fetch next.
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

    /// The URL that the user named for the call with this number. Secrets go to its server only.
    pub(super) fn meant(&self, call: u16) -> Option<Url> {
        let text = self.via.first().or_else(|| self.urls.get(usize::from(call)));
        text.and_then(|text| Url::parse(text).ok())
    }

    /// The same task, from the URL that the user named, in one piece.
    pub(super) fn anew(&self, first: &Url) -> Task {
        Task { via: vec![first.to_string()], seen: Vec::new(), unsplit: true, ..self.clone() }
    }

    /// The file of an earlier run that this task was to replace.
    pub(super) fn saved(&self) -> Option<Saved> {
        let Version { etag, last_modified } = self.have.clone().unwrap_or_default();
        let url = Url::parse(self.urls.first()?).ok()?;
        let standing = Saved::standing(&url, &self.target, self.had?, None);
        Some(Saved { etag, last_modified, ..standing })
    }

    /// The same task, for another call at `url`.
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

/// A URL for display, without its login.
pub(super) fn shown(url: &Url) -> String {
    if url.username().is_empty() && url.password().is_none() {
        return url.to_string();
    }
    let mut url = url.clone();
    // This fails only for URLs without host, which have no login either.
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
