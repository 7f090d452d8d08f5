//! Logins from a netrc file.

use std::collections::BTreeMap;
use std::fmt;

use hyper::header::HeaderValue;

use super::basic;

mod words;

use words::Words;

/// The largest file that is read.
pub const LARGEST_FILE: usize = 1 << 20;

/// The most machines of one file.
pub const MOST_MACHINES: usize = 10_000;

/// The longest name or password.
pub const LONGEST_WORD: usize = 4 << 10;

/// The logins of one file, by host.
#[derive(Default)]
pub struct Netrc {
    /// By host in lower case; `None` for a machine without a login.
    machines: BTreeMap<String, Option<Login>>,
    default: Option<Login>,
}

/// A name and a password. The password never shows in text.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    name: String,
    password: String,
}

/// An error in a netrc file. It names the line, but never shows its contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{file}`, line {line}: {wrong}")]
pub struct NetrcError {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The error.
    pub wrong: WrongNetrc,
}

/// The errors of a netrc file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongNetrc {
    /// An unknown keyword.
    #[error(
        "neither `machine`, `default`, `login`, `password`, `account` nor `macdef`; \
         a password with spaces needs quotes"
    )]
    Keyword,
    /// A keyword at the end of the file.
    #[error("a keyword without its value")]
    Value,
    /// A login without a machine.
    #[error("a login, password or account before any `machine` or `default`")]
    NoMachine,
    /// An open quote.
    #[error("a quote that is not closed on its line")]
    Quote,
    /// Not text.
    #[error("not text: save the file as UTF-8, without control characters")]
    Text,
    /// Not for HTTP.
    #[error("a login name with a colon, which HTTP cannot send")]
    Colon,
    /// Too long.
    #[error("a word of more than 4 KiB")]
    Long,
    /// Too many.
    #[error("more than 10000 machines")]
    Many,
    /// Too large.
    #[error("the file is larger than 1 MiB")]
    Large,
}

impl Netrc {
    /// The logins of a file; `source` names it in errors.
    pub fn parse(text: &[u8], source: &str) -> Result<Netrc, NetrcError> {
        let error = |line, wrong| NetrcError { file: source.to_owned(), line, wrong };
        if text.len() > LARGEST_FILE {
            return Err(error(1, WrongNetrc::Large));
        }
        let mut words = Words::new(text);
        read(&mut words).map_err(|wrong| error(words.line(), wrong))
    }

    /// The login of a machine in the file.
    pub fn machine_login(&self, host: &str) -> Option<&Login> {
        self.machines.get(&host.to_ascii_lowercase())?.as_ref()
    }

    /// The login for a host: that of its machine, else the default one.
    ///
    /// The first of several entries for one machine counts, as in other programs.
    pub fn login(&self, host: &str) -> Option<&Login> {
        match self.machines.get(&host.to_ascii_lowercase()) {
            Some(login) => login.as_ref(),
            None => self.default.as_ref(),
        }
    }
}

impl fmt::Debug for Netrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netrc").field("machines", &self.machines.len()).finish_non_exhaustive()
    }
}

impl Login {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of an `Authorization` header, marked as sensitive.
    pub fn basic(&self) -> HeaderValue {
        basic(self.name.as_bytes(), self.password.as_bytes())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("name", &self.name).finish_non_exhaustive()
    }
}

/// An entry that is being read.
struct MachineEntry {
    host: Option<String>,
    name: Option<String>,
    password: Option<String>,
}

fn read(words: &mut Words<'_>) -> Result<Netrc, WrongNetrc> {
    let mut netrc = Netrc::default();
    let mut entry: Option<MachineEntry> = None;
    while let Some(keyword) = words.keyword()? {
        if let b"machine" | b"default" = keyword {
            netrc.keep(entry.take())?;
            let host = if keyword == b"machine" { Some(words.value()?) } else { None };
            entry = Some(MachineEntry { host, name: None, password: None });
            continue;
        }
        if keyword == b"macdef" {
            words.value()?;
            words.skip_macro();
            continue;
        }
        let entry = entry.as_mut();
        match keyword {
            b"login" => {
                let name = words.value()?;
                if name.contains(':') {
                    return Err(WrongNetrc::Colon);
                }
                entry.ok_or(WrongNetrc::NoMachine)?.name = Some(name);
            }
            b"password" => {
                let password = words.value()?;
                entry.ok_or(WrongNetrc::NoMachine)?.password = Some(password);
            }
            // An account is for FTP.
            b"account" => {
                words.value()?;
                entry.ok_or(WrongNetrc::NoMachine)?;
            }
            _ => return Err(WrongNetrc::Keyword),
        }
    }
    netrc.keep(entry)?;
    Ok(netrc)
}

impl Netrc {
    fn keep(&mut self, entry: Option<MachineEntry>) -> Result<(), WrongNetrc> {
        let Some(MachineEntry { host, name, password }) = entry else { return Ok(()) };
        let known = name.is_some() || password.is_some();
        let login = known.then(|| Login {
            name: name.unwrap_or_default(),
            password: password.unwrap_or_default(),
        });
        let Some(host) = host else {
            self.default = self.default.take().or(login);
            return Ok(());
        };
        self.machines.entry(host.to_ascii_lowercase()).or_insert(login);
        if self.machines.len() > MOST_MACHINES { Err(WrongNetrc::Many) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
