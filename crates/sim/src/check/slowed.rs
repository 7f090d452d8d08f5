//! The reaction of a lane to throttling and to success, modelled a second time (L7).

use paceline_core::{AttemptId, GapFrom, Priority, Span, Time};

use super::lanes::{AttemptModel, LaneModel};

/// The effect of throttling on a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Slowed {
    gap: Span,
    /// When a gap was first set.
    since: Time,
    /// The gap at which the lane is back to normal.
    ground: Span,
    refused: Option<(Span, Time)>,
    /// The most calls at once, if fewer than configured.
    narrowed: Option<u32>,
    successes: u32,
    /// Earlier starts are not counted: the lane or its process is newer.
    counts_from: Time,
}

impl Slowed {
    /// The process died or the lane was dropped, and its counts of starts and successes with it.
    pub(super) fn forget_counts(&mut self, now: Time) {
        (self.counts_from, self.successes) = (now, 0);
    }

    /// Returns `true` if throttling has no effect any more.
    pub(super) fn is_over(&self) -> bool {
        self.gap == Span::ZERO && self.narrowed.is_none()
    }

    /// An operator reset the lane.
    pub(super) fn reset(&mut self) {
        *self = Slowed { counts_from: self.counts_from, ..Slowed::default() };
    }

    pub(super) fn fails(&mut self) {
        self.successes = 0;
    }

    /// The configured number of calls at once changed.
    pub(super) fn widened_to(&mut self, in_flight: u32) {
        self.narrowed = self.narrowed.filter(|narrow| *narrow < in_flight);
    }
}

impl LaneModel {
    /// The gap between calls before this throttling, if there is one.
    fn present_gap(&self, now: Time) -> Option<Span> {
        let gap = self.limits().every.unwrap_or(Span::ZERO).max(self.slowed.gap);
        if gap > Span::ZERO {
            return Some(gap);
        }
        let known = self.attempts.iter().filter(|t| t.start_known && !t.unused);
        let counted = known.filter(|t| t.start_told > self.slowed.counts_from);
        let mut starts: Vec<u64> = counted.map(|t| t.started_at.0).collect();
        // Whole seconds, the last one included: an assumed start may lie in the future.
        let last = starts.iter().copied().fold(now.0, u64::max) / 1_000_000;
        let ago = |seconds: u64| last.saturating_sub(seconds) * 1_000_000;
        starts.retain(|at| *at >= ago(9));
        // A few starts may be one burst, unless the first is several seconds old.
        let lasts = starts.len() > 1 && starts.iter().any(|at| *at < ago(4));
        (lasts || starts.len() >= 20).then(|| Span(10_000_000 / starts.len() as u64))
    }

    /// The upstream throttled, perhaps with `Retry-After`: slows the lane down unless that is
    /// later.
    pub(super) fn throttled(
        &mut self,
        attempt: AttemptId,
        newest: AttemptId,
        dated: Option<Span>,
        now: Time,
    ) {
        let present = self.present_gap(now);
        let every = self.limits().every;
        let most = every.unwrap_or(self.slowed.ground.max(Span::secs(1))).times(16);
        let gap = present.map_or(Span::secs(1), |gap| gap.times(2).min(most).max(gap));
        if dated.is_some_and(|after| after >= gap) {
            return;
        }
        self.restricted = true;
        self.slowed.successes = 0;
        // A request that was on the wire when the lane was last judged adds nothing.
        if attempt <= self.judged {
            return;
        }
        self.judged = newest;
        if self.slowed.gap == Span::ZERO {
            self.slowed.since = now;
            self.slowed.ground = every.or(present).unwrap_or(Span::millis(10));
        }
        self.slowed.gap = gap;
        self.slowed.refused = present.map(|present| (present, now));
        let wide = self.slowed.narrowed.unwrap_or(self.limits().in_flight.get());
        self.slowed.narrowed = Some((wide / 2).max(1));
    }

    /// Five successes allow one more call at once and shorten the gap by a quarter. The gap stays a
    /// sixteenth above one that was refused in the last ten minutes.
    pub(super) fn succeeded(&mut self, now: Time) {
        self.answered();
        if !self.restricted {
            return;
        }
        self.slowed.successes += 1;
        if self.slowed.successes < 5 {
            return;
        }
        self.slowed.successes = 0;
        let wider = self.slowed.narrowed.map(|narrow| narrow + 1);
        let narrowed = wider.filter(|wide| *wide < self.limits().in_flight.get());
        self.slowed.narrowed = narrowed;
        let gap = self.slowed.gap;
        let refused = self.slowed.refused.filter(|(_, at)| now < *at + Span::mins(10));
        let floor = refused.map_or(Span::ZERO, |(span, _)| span + Span(span.0 / 16));
        let shorter = Span(gap.0 - gap.0 / 4).max(floor).min(gap);
        if shorter > self.slowed.ground {
            self.slowed.gap = shorter;
        } else {
            let counts_from = self.slowed.counts_from;
            self.slowed = Slowed { narrowed, counts_from, ..Slowed::default() };
        }
    }

    /// The upstream responded, whatever the verdict: the ladder is cleared.
    pub(super) fn answered(&mut self) {
        (self.failures, self.rung) = (0, 0);
        self.failed_calls.clear();
    }
}

impl LaneModel {
    /// The gaps after a finish, by the rules that set them. A newer gap may miss the finish, if the
    /// process died or the lane was dropped since.
    pub(super) fn gaps_after(&self, last: Time, rank: Priority) -> [(&'static str, Span); 3] {
        let limits = self.limits();
        let configured = LaneModel::gap(limits, rank);
        let known = last >= self.fresh_at || configured > Span::ZERO;
        let only = |holds: bool, gap: Span| if holds { gap } else { Span::ZERO };
        let slowed = Span(limits.gap_share[rank.index()].of(self.slowed.gap.0));
        let said = self.announced.as_ref();
        let announced = said.and_then(|said| said.announced.every).unwrap_or(Span::ZERO);
        [
            ("L2", configured),
            ("L7", only(known || last > self.slowed.since, slowed)),
            ("L8", only(known || said.is_some_and(|said| last > said.at), announced)),
        ]
    }
}

/// L7: a throttled lane keeps its gap.
pub(super) fn too_fast(
    name: &str,
    lane: &LaneModel,
    attempt: &AttemptModel,
    now: Time,
) -> Option<String> {
    let gap = Span(lane.limits().gap_share[attempt.rank.index()].of(lane.slowed.gap.0));
    // A request that was answered had arrived, whatever the slack.
    let seen = |t: &AttemptModel| t.left_at.map_or(t.counts_at, |left| left.min(t.counts_at));
    let starts = lane.attempts.iter().filter(|t| !t.unused).map(seen);
    let last = starts.filter(|at| *at >= lane.rules.changed_at).max()?;
    let binds = gap > Span::ZERO && lane.limits().gap_from == GapFrom::Start;
    let fast = binds && now < last + gap;
    fast.then(|| format!("{name}: {} after the last request, throttled to {gap}", now.since(last)))
}

/// L7: a throttled lane has fewer calls at once, also after a restart.
pub(super) fn too_wide(name: &str, lane: &LaneModel) -> Option<String> {
    let narrowed = lane.slowed.narrowed?;
    let held = lane.held();
    (held >= narrowed)
        .then(|| format!("{name}: one more than {held} at once, narrowed to {narrowed}"))
}
