//! Attempts obey the rules of their server, if robots.txt is in use.

use hyper::StatusCode;
use paceline::workers::Announced;
use url::Url;

use super::rules::{LONGEST_WAIT, Look, Rules};
use crate::fetch::attempt_end::{AttemptEnd, permanent, transient};
use crate::fetch::task::{Detour, Task};
use crate::fetch::worker::Attempt;
use crate::http::announced::retry_after;
use crate::http::robots::{LARGEST_FILE, Robots};
use crate::http::{is_redirect, led_to, refusal};

/// The name by which robots.txt calls this program.
const PRODUCT: &str = "paceline";
/// Redirects that are followed to the rules of one server, as many as RFC 9309 asks for.
const MOST_REDIRECTS: usize = 5;

/// The result of a request for robots.txt.
enum RulesResponse {
    Rules(Robots),
    Elsewhere(Url),
}

impl Attempt<'_> {
    /// Checks the server's rules, if robots.txt is in use. The first attempt at a server fetches
    /// them in place of its file, which the next attempt fetches.
    pub(in crate::fetch) async fn obey(&mut self) -> Result<(), AttemptEnd> {
        if let Some(detour) = &self.task.detour {
            let file = self.task.file_url(self.call.id().index);
            let file = file.ok_or_else(|| permanent("payload", "no address"))?;
            // Another attempt may have fetched the rules in the meantime.
            return Err(match &self.get.rules {
                Some(rules) if !rules.knows(&file) => {
                    self.ask_rules(rules, &file, self.url, detour.redirects).await?
                }
                _ => self.back(&file),
            });
        }
        let Some(rules) = &self.get.rules else { return Ok(()) };
        match rules.look(self.url) {
            Look::Rules(robots) => {
                self.announce(&robots);
                self.allowed(&robots)
            }
            Look::News(robots) if robots.crawl_delay().is_none() => self.allowed(&robots),
            Look::News(robots) => {
                self.announce(&robots);
                Err(AttemptEnd::Late)
            }
            Look::Wait(told) => {
                let _ = tokio::time::timeout(LONGEST_WAIT, told).await;
                Err(AttemptEnd::Late)
            }
            Look::Elsewhere(detour) => Err(self.round(detour)),
            Look::Ask(_duty) => {
                let address = self.url.join("/robots.txt").expect("a path fits every address");
                Err(self.ask_rules(rules, self.url, &address, 0).await?)
            }
        }
    }

    /// Checks the server's rules for a piece of a file that they already allow: only their
    /// crawl delay matters.
    pub(in crate::fetch) async fn obey_piece(&mut self) -> Result<(), AttemptEnd> {
        let Some(rules) = &self.get.rules else { return Ok(()) };
        match rules.look(self.url) {
            Look::Rules(robots) => self.announce(&robots),
            Look::News(robots) if robots.crawl_delay().is_none() => {}
            Look::News(robots) => {
                self.announce(&robots);
                return Err(AttemptEnd::Late);
            }
            Look::Wait(told) => {
                let _ = tokio::time::timeout(LONGEST_WAIT, told).await;
                return Err(AttemptEnd::Late);
            }
            // The rules were known, and dropped for lack of room.
            Look::Ask(_) | Look::Elsewhere(_) => {}
        }
        Ok(())
    }

    fn allowed(&self, robots: &Robots) -> Result<(), AttemptEnd> {
        if robots.allows(self.url) {
            Ok(())
        } else {
            Err(permanent("robots", "robots.txt of this host disallows this URL"))
        }
    }

    /// Announces `Crawl-delay` as a limit of the host (L8).
    fn announce(&mut self, robots: &Robots) {
        let every = robots.crawl_delay().map(paceline::Span::from);
        self.announced = every.map(|_| Announced { every, ..Announced::default() });
    }

    /// Fetches the rules of the server of `file` from `address`, and returns the next step.
    async fn ask_rules(
        &self,
        rules: &Rules,
        file: &Url,
        address: &Url,
        redirects: usize,
    ) -> Result<AttemptEnd, AttemptEnd> {
        let answer = tokio::time::timeout(LONGEST_WAIT, self.question(address)).await;
        let slow = |_| transient("timeout", "fetching robots.txt took longer than a minute");
        let robots = match answer.map_err(slow)?? {
            RulesResponse::Rules(robots) => robots,
            RulesResponse::Elsewhere(to) if redirects < MOST_REDIRECTS => {
                let detour = Detour { address: to.to_string(), redirects: redirects + 1 };
                rules.lead(file, &detour);
                return Ok(self.round(detour));
            }
            // Too many redirects: the server counts as having no rules.
            RulesResponse::Elsewhere(_) => Robots::default(),
        };
        rules.learn(file, robots);
        Ok(self.back(file))
    }

    async fn question(&self, address: &Url) -> Result<RulesResponse, AttemptEnd> {
        let (get, client) = (self.get, &self.get.client);
        let of = (self.task, self.call.id().index);
        let request = get.manners.plain(client, of, address, self.call.wall());
        let mut exchange = self.send(address, request).await?;
        let status = exchange.status;
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            let wait = retry_after(&exchange.headers, self.call.wall());
            client.discard(address, exchange).await;
            return Err(AttemptEnd::Refused(refusal(status, wait)));
        }
        let mut text = Vec::new();
        if status.is_success() {
            while let Some(piece) = client.piece(address, &mut exchange).await? {
                text.extend_from_slice(&piece);
                if text.len() > LARGEST_FILE {
                    return Ok(RulesResponse::Rules(Robots::parse(&text, PRODUCT)));
                }
            }
        }
        let led_to = led_to(address, &exchange.headers);
        client.discard(address, exchange).await;
        match led_to {
            Ok(to) if is_redirect(status) => Ok(RulesResponse::Elsewhere(to)),
            _ => Ok(RulesResponse::Rules(Robots::parse(&text, PRODUCT))),
        }
    }

    /// Continues at the URL of the rules.
    fn round(&self, detour: Detour) -> AttemptEnd {
        let to = Url::parse(&detour.address).expect("it was an address before");
        let task = self.task.again(self.url);
        AttemptEnd::Moved(Box::new(Task { detour: Some(detour), ..task }), to)
    }

    /// Continues at the file, once the rules are known.
    fn back(&self, file: &Url) -> AttemptEnd {
        AttemptEnd::Moved(Box::new(Task { detour: None, ..self.task.again(file) }), file.clone())
    }
}
