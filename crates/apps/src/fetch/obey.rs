//! An attempt looks at the server's rules, if they are asked.

use hyper::StatusCode;
use paceline::Announced;

use super::answer::refusal;
use super::came::{Came, permanent};
use super::get::Attempt;
use super::request::meant;
use super::rules::Look;
use crate::http::announced::retry_after;
use crate::http::robots::Robots;

/// The name by which robots.txt calls this program.
const PRODUCT: &str = "paceline";
/// The largest robots.txt that is read (RFC 9309).
const LARGEST_ROBOTS: usize = 500 << 10;

impl Attempt<'_> {
    /// Looks at the server's rules, if they are asked; the first attempt at a server asks for
    /// them instead of its file, which the next attempt gets.
    pub(super) async fn obey(&mut self) -> Result<(), Came> {
        let Some(rules) = &self.get.rules else { return Ok(()) };
        match rules.look(self.url) {
            Look::Rules(robots) => {
                self.announce(&robots);
                self.allowed(&robots)
            }
            Look::News(robots) if robots.crawl_delay().is_none() => self.allowed(&robots),
            Look::News(robots) => {
                self.announce(&robots);
                Err(Came::Late)
            }
            Look::Wait(told) => {
                told.await;
                Err(Came::Late)
            }
            Look::Ask(asking) => {
                let robots = self.ask_rules().await?;
                self.announce(&robots);
                asking.answer(robots);
                Err(Came::Moved(Box::new(self.task.again(self.url)), self.url.clone()))
            }
        }
    }

    fn allowed(&self, robots: &Robots) -> Result<(), Came> {
        if robots.allows(self.url) {
            Ok(())
        } else {
            Err(permanent("robots", "robots.txt of this host says no"))
        }
    }

    /// `Crawl-delay` is a limit like any other that a host announces (L8).
    fn announce(&mut self, robots: &Robots) {
        let every = robots.crawl_delay().map(paceline::Span::from);
        self.announced = every.map(|_| Announced { every, ..Announced::default() });
    }

    async fn ask_rules(&self) -> Result<Robots, Came> {
        let (get, client) = (self.get, &self.get.client);
        let address = self.url.join("/robots.txt").expect("a path fits every http address");
        let meant = meant(self.task);
        let request = get.manners.plain(client, &address, meant.as_ref(), self.call.wall());
        let mut exchange = self.send(&address, request).await?;
        let status = exchange.status;
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            let wait = retry_after(&exchange.headers, self.call.wall());
            client.discard(&address, exchange).await;
            return Err(Came::Refused(refusal(status, wait)));
        }
        let mut text = Vec::new();
        if status.is_success() {
            while let Some(piece) = client.piece(&address, &mut exchange).await? {
                text.extend_from_slice(&piece);
                if text.len() >= LARGEST_ROBOTS {
                    return Ok(Robots::parse(&text, PRODUCT));
                }
            }
        }
        client.discard(&address, exchange).await;
        // No rules, or rules elsewhere: whatever is fetched elsewhere asks there.
        Ok(Robots::parse(&text, PRODUCT))
    }
}
