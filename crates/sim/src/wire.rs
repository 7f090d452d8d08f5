//! Workers and the wire: requests on their way, and what a service sees of them (L4, L5).

use std::sync::Arc;

use paceline::turn::Input;
use paceline_core::{
    About, AttemptId, AttemptResult, CallId, Failure, Mutant, Span, Start, Time, Verdict,
};

use crate::agenda::Next;
use crate::service::Reaction;
use crate::world::World;

/// Nobody asks when a request started that is over within this, if no limit does.
const SOON: Span = Span::millis(100);

/// One attempt in the hands of a worker.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a request")]
pub(crate) struct Request {
    lane: Arc<str>,
    call: CallId,
    send_by: Time,
    tell_start: bool,
    timeout: Option<Span>,
    pub(crate) sent_at: Option<Time>,
    /// The service has answered and sees it no more; the worker is not done with it.
    answered: bool,
    told: bool,
    aborted: bool,
    /// The engine has been told that it is over, while the service still sees it.
    disowned: bool,
    reaction: Option<Reaction>,
}

impl Request {
    /// Whether it is on the wire without the process that made it, which is gone: what that one
    /// knew of it is forgotten.
    pub(crate) fn outlives(&mut self, goes_on: bool) -> bool {
        let outlives = goes_on && self.sent_at.is_some();
        if outlives {
            (self.answered, self.told, self.aborted) = (false, false, false);
        }
        outlives
    }
}

impl World {
    /// A worker takes an attempt; when it gets to write the request is another matter.
    pub(crate) fn dispatch(&mut self, start: Start) {
        if let Some(begun_at) = start.begun_at {
            return self.take_up(&start, begun_at);
        }
        let request = Request {
            lane: start.lane,
            call: start.call,
            send_by: start.send_by,
            tell_start: start.tell_start,
            timeout: start.timeout,
            sent_at: None,
            answered: false,
            told: false,
            aborted: false,
            disowned: false,
            reaction: None,
        };
        self.wire.insert(start.attempt, request);
        let delay = if self.manners.steady {
            Span::ZERO
        } else if self.rng.percent(self.manners.stalls) {
            Span(self.rng.range(20_000, 120_000))
        } else {
            Span(self.rng.range(0, 2_000))
        };
        let early = start.start_at.since(self.now());
        self.after(early + delay, Next::Send(start.attempt));
    }

    /// A worker waits on for what an earlier process began. What that one never sent is lost.
    fn take_up(&mut self, start: &Start, begun_at: Time) {
        let now = self.now();
        self.counts.more("taken up");
        let (attempt, timeout) = (start.attempt, start.timeout);
        self.trace.note(now, format_args!("take up #{} {}", start.call.job, start.lane));
        let lost = Verdict::Lost { failure: Failure::permanent("unknown") };
        let request = self.wire.entry(attempt).or_insert_with(|| Request {
            lane: start.lane.clone(),
            call: start.call,
            send_by: start.send_by,
            tell_start: false,
            timeout,
            sent_at: None,
            answered: false,
            told: false,
            aborted: false,
            disowned: false,
            reaction: Some(Reaction::new(lost)),
        });
        let after = request.reaction.as_ref().map_or(Span::ZERO, |reaction| reaction.after);
        let answer_at = request.sent_at.unwrap_or(begun_at) + after;
        self.at(answer_at, Next::Answer(attempt));
        if let Some(timeout) = timeout {
            self.after(timeout, Next::Timeout(attempt));
        }
    }

    /// The last check stands right before the write.
    pub(crate) fn send(&mut self, attempt: AttemptId) {
        let now = self.now();
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        let too_late = now > request.send_by && !Mutant::SendByUnchecked.on();
        if too_late || request.aborted {
            self.counts.unused += 1;
            self.wire.remove(&attempt);
            let told = AttemptResult { verdict: Verdict::Unused, announced: None };
            self.inbox.push(Input::Told(attempt, told, 0));
            self.inbox.push(Input::Ended(attempt));
            return;
        }
        request.sent_at = Some(now);
        self.counts.requests += 1;
        let (call, lane) = (request.call, request.lane.clone());
        let (timeout, tell) = (request.timeout, request.tell_start);
        self.end_leftovers(attempt);
        let travels = self.travel_time(attempt);
        self.book.arrives(attempt, now, now + travels);
        let priority = self.book.priority_of(attempt);
        self.trace.note(now, format_args!("start #{} {lane} {priority}", call.job));
        let mut reaction = self.reaction(call, &lane);
        if self.book.service_of(attempt).is_some()
            && matches!(reaction.told.verdict, Verdict::Moved { .. })
        {
            reaction.told.verdict = Verdict::Empty;
        }
        // What outlives its process stays where it can be taken up, and is over once it is told.
        let again =
            |verdict: &Verdict| matches!(verdict, Verdict::Moved { .. } | Verdict::NotProcessed);
        if again(&reaction.told.verdict) && self.book.goes_on(attempt) {
            reaction.told.verdict = Verdict::Empty;
        }
        // Whoever makes its own call makes it once, whatever comes of it.
        if let Verdict::Throttled { again, .. } = &mut reaction.told.verdict
            && self.book.goes_on(attempt)
        {
            *again = false;
        }
        // Of what is over soon the engine hears no earlier than of its end.
        if tell || reaction.after > SOON {
            let delay = self.delay_of_start();
            self.after(delay, Next::TellStart(attempt));
        }
        if let Some(timeout) = timeout {
            self.after(timeout, Next::Timeout(attempt));
        }
        reaction.after += travels;
        self.after(reaction.after, Next::Answer(attempt));
        let request = self.wire.get_mut(&attempt).expect("found above");
        request.reaction = Some(reaction);
    }

    /// The worker of a service ends what is left of an earlier run before it starts another (S3).
    fn end_leftovers(&mut self, attempt: AttemptId) {
        let Some(service) = self.book.service_of(attempt) else { return };
        let left_over = |(id, request): (&AttemptId, &Request)| {
            let given_up = request.told || request.aborted;
            (given_up && self.book.service_of(*id).as_ref() == Some(&service)).then_some(*id)
        };
        let left_over: Vec<AttemptId> = self.wire.iter().filter_map(left_over).collect();
        for id in left_over {
            self.end(id);
        }
    }

    /// How long a request is on its way: at most what its lane allows for that. In a story it is
    /// that long for every other request, and for those between not at all.
    fn travel_time(&mut self, attempt: AttemptId) -> Span {
        match self.book.longest_way(attempt) {
            Span::ZERO => Span::ZERO,
            longest if self.manners.steady => longest.times(attempt.0 % 2),
            longest => Span(self.rng.range(0, longest.0)),
        }
    }

    fn delay_of_start(&mut self) -> Span {
        if self.manners.steady {
            return Span::ZERO;
        }
        match self.rng.range(0, 19) {
            0..=13 => Span::ZERO,
            14..=18 => Span(self.rng.range(0, 5_000)),
            _ => Span(self.rng.range(0, 2_000_000)),
        }
    }

    fn reaction(&mut self, call: CallId, lane: &Arc<str>) -> Reaction {
        let label = self.labels.get(&call.job).copied().unwrap_or(0);
        for key in [(label, Some(lane.clone())), (label, None)] {
            if let Some(reaction) =
                self.scripts.get_mut(&key).and_then(std::collections::VecDeque::pop_front)
            {
                return reaction;
            }
        }
        if let Some(temper) = self.tempers.get(lane) {
            let lanes = self.book.lane_names();
            let elsewhere = self.rng.pick(&lanes).clone();
            return temper.reaction(&mut self.rng, &elsewhere);
        }
        let value = b"1".as_slice().into();
        let now = self.clock.truth;
        let takes = self.strict.get_mut(lane).is_none_or(|strict| strict.takes(now));
        let mut reaction = Reaction::new(if takes {
            Verdict::Done { conclusive: true, value }
        } else {
            Verdict::Throttled { retry_after: None, again: true }
        });
        reaction.after = self.latency;
        reaction
    }

    pub(crate) fn tell_start(&mut self, attempt: AttemptId) {
        let Some(at) = self.wire.get(&attempt).and_then(|request| request.sent_at) else { return };
        self.inbox.push(Input::Started(attempt, at));
    }

    pub(crate) fn answer_comes(&mut self, attempt: AttemptId) {
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        if request.answered {
            return;
        }
        let wanted = !request.told && !request.aborted;
        let settles = request.reaction.as_ref().and_then(|reaction| reaction.settles);
        match settles.filter(|_| wanted) {
            Some(settles) => self.say_answered(attempt, settles),
            None => self.settle(attempt),
        }
    }

    /// The worker has everything and the service sees nothing of it any more; what it came to is
    /// told later (L5).
    fn say_answered(&mut self, attempt: AttemptId, settles: Span) {
        let now = self.now();
        let request = self.wire.get_mut(&attempt).expect("the caller found it");
        request.answered = true;
        let (sent_at, job, lane) = (request.sent_at, request.call.job, request.lane.clone());
        self.counts.answered += 1;
        self.book.left_the_wire(attempt, now);
        self.trace.note(now, format_args!("answered #{job} {lane}"));
        // The start comes along, unless something else goes wrong on the way.
        let told = self.manners.steady || !self.rng.one_in(4);
        self.inbox.extend(sent_at.filter(|_| told).map(|at| Input::Started(attempt, at)));
        self.inbox.push(Input::Answered(attempt));
        self.after(settles, Next::Settle(attempt));
    }

    /// Said twice, or too late: nobody cares.
    fn say_again(&mut self, attempt: AttemptId) {
        if !self.manners.steady && self.rng.one_in(8) {
            self.inbox.push(Input::Answered(attempt));
        }
    }

    /// The worker tells what it got, and lets go.
    pub(crate) fn settle(&mut self, attempt: AttemptId) {
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        let answered = request.answered;
        if !request.told && !request.aborted {
            request.told = true;
            let told =
                request.reaction.as_ref().expect("sent requests have an answer").told.clone();
            let roll = self.rng.next();
            if answered {
                self.say_again(attempt);
            }
            self.inbox.push(Input::Told(attempt, told, roll));
            self.say_again(attempt);
        }
        let lingers = if self.manners.steady { 0 } else { self.rng.range(0, 3_000) };
        self.after(Span(lingers), Next::End(attempt));
    }

    /// The worker gives up; the request may hang on.
    pub(crate) fn time_out(&mut self, attempt: AttemptId) {
        let now = self.now();
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        if request.told || request.aborted {
            return;
        }
        request.told = true;
        let hangs = request.reaction.as_ref().filter(|_| !request.answered);
        let hangs = hangs.map_or(Span::ZERO, |reaction| reaction.hangs);
        let ends_at = (request.sent_at.unwrap_or(now) + hangs).max(now);
        request.disowned = Mutant::SlotFreedEarly.on();
        let disowned = request.disowned;
        let verdict = {
            let failure = Failure::transient("timeout");
            Verdict::Failed { failure, retry_after: None, about: About::Lane }
        };
        let roll = self.rng.next();
        self.inbox.push(Input::Told(attempt, AttemptResult { verdict, announced: None }, roll));
        if disowned {
            self.inbox.push(Input::Ended(attempt));
        }
        self.counts.timeouts += 1;
        self.at(ends_at, Next::End(attempt));
    }

    /// Nobody wants it any more: the worker closes the connection as soon as it can.
    pub(crate) fn abort(&mut self, attempt: AttemptId) {
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        request.aborted = true;
        if request.sent_at.is_some() {
            let lingers = if self.manners.steady { 0 } else { self.rng.range(0, 100_000) };
            self.after(Span(lingers), Next::End(attempt));
        }
    }

    /// The request is really gone from the wire.
    pub(crate) fn end(&mut self, attempt: AttemptId) {
        let Some(request) = self.wire.remove(&attempt) else { return };
        if !request.answered {
            self.book.left_the_wire(attempt, self.clock.truth);
        }
        if !request.disowned {
            let delay = if self.manners.steady { 0 } else { self.rng.range(0, 1_500) };
            self.after(Span(delay), Next::TellEnd(attempt));
        }
    }
}
