//! Workers and the wire: requests in transit, and when their upstream sees them (L4, L5).

use std::sync::Arc;

use paceline::turn::Input;
use paceline_core::{
    About, AttemptId, AttemptResult, CallId, Failure, Mutant, Span, Start, Time, Verdict,
};

use crate::agenda::Next;
use crate::upstream::Response;
use crate::world::World;

/// If no limit asks for the start of a request, a worker reports it only for one that takes longer.
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
    /// The upstream has responded in full; the worker has not reported its verdict yet.
    answered: bool,
    told: bool,
    aborted: bool,
    /// The engine was told that the request ended, while the upstream still has it.
    disowned: bool,
    response: Option<Response>,
}

impl Request {
    /// Returns `true` if the request goes on after its process died. The state of its worker is
    /// reset.
    pub(crate) fn outlives(&mut self, goes_on: bool) -> bool {
        let outlives = goes_on && self.sent_at.is_some();
        if outlives {
            (self.answered, self.told, self.aborted) = (false, false, false);
        }
        outlives
    }
}

impl World {
    /// A worker takes an attempt. It writes the request a little later.
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
            response: None,
        };
        self.wire.insert(start.attempt, request);
        let delay = if self.conditions.steady {
            Span::ZERO
        } else if self.rng.percent(self.conditions.stalls) {
            Span(self.rng.range(20_000, 120_000))
        } else {
            Span(self.rng.range(0, 2_000))
        };
        let early = start.start_at.since(self.now());
        self.after(early + delay, Next::Send(start.attempt));
    }

    /// A worker waits for a request of an earlier process. A request that was never sent is lost.
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
            response: Some(Response::new(lost)),
        });
        let after = request.response.as_ref().map_or(Span::ZERO, |response| response.after);
        let answer_at = request.sent_at.unwrap_or(begun_at) + after;
        self.at(answer_at, Next::Answer(attempt));
        if let Some(timeout) = timeout {
            self.after(timeout, Next::Timeout(attempt));
        }
    }

    /// Sends the request, unless it is too late: the last check comes right before the write.
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
        self.checker.arrives(attempt, now, now + travels);
        let priority = self.checker.priority_of(attempt);
        self.trace.note(now, format_args!("start #{} {lane} {priority}", call.job));
        let mut response = self.response(call, &lane);
        if self.checker.service_of(attempt).is_some()
            && matches!(response.told.verdict, Verdict::Moved { .. })
        {
            response.told.verdict = Verdict::Empty;
        }
        // An attempt that outlives its process is not repeated or moved: it ends with its verdict.
        let again =
            |verdict: &Verdict| matches!(verdict, Verdict::Moved { .. } | Verdict::NotProcessed);
        if again(&response.told.verdict) && self.checker.goes_on(attempt) {
            response.told.verdict = Verdict::Empty;
        }
        // The holder of a permit makes its own request, once.
        if let Verdict::Throttled { again, .. } = &mut response.told.verdict
            && self.checker.goes_on(attempt)
        {
            *again = false;
        }
        // For a short request the worker reports the start together with the end.
        if tell || response.after > SOON {
            let delay = self.delay_of_start();
            self.after(delay, Next::TellStart(attempt));
        }
        if let Some(timeout) = timeout {
            self.after(timeout, Next::Timeout(attempt));
        }
        response.after += travels;
        self.after(response.after, Next::Answer(attempt));
        let request = self.wire.get_mut(&attempt).expect("found above");
        request.response = Some(response);
    }

    /// The worker of a service ends the leftovers of an earlier run before it starts another (S3).
    fn end_leftovers(&mut self, attempt: AttemptId) {
        let Some(service) = self.checker.service_of(attempt) else { return };
        let left_over = |(id, request): (&AttemptId, &Request)| {
            let given_up = request.told || request.aborted;
            (given_up && self.checker.service_of(*id).as_ref() == Some(&service)).then_some(*id)
        };
        let left_over: Vec<AttemptId> = self.wire.iter().filter_map(left_over).collect();
        for id in left_over {
            self.end(id);
        }
    }

    /// The transit time of a request: at most the slack of its lane. In a scenario every other
    /// request takes the full slack, and the others take none.
    fn travel_time(&mut self, attempt: AttemptId) -> Span {
        match self.checker.longest_way(attempt) {
            Span::ZERO => Span::ZERO,
            longest if self.conditions.steady => longest.times(attempt.0 % 2),
            longest => Span(self.rng.range(0, longest.0)),
        }
    }

    fn delay_of_start(&mut self) -> Span {
        if self.conditions.steady {
            return Span::ZERO;
        }
        match self.rng.range(0, 19) {
            0..=13 => Span::ZERO,
            14..=18 => Span(self.rng.range(0, 5_000)),
            _ => Span(self.rng.range(0, 2_000_000)),
        }
    }

    fn response(&mut self, call: CallId, lane: &Arc<str>) -> Response {
        let label = self.labels.get(&call.job).copied().unwrap_or(0);
        for key in [(label, Some(lane.clone())), (label, None)] {
            if let Some(response) =
                self.scripts.get_mut(&key).and_then(std::collections::VecDeque::pop_front)
            {
                return response;
            }
        }
        if let Some(behaviour) = self.behaviours.get(lane) {
            let lanes = self.checker.lane_names();
            let elsewhere = self.rng.pick(&lanes).clone();
            return behaviour.response(&mut self.rng, &elsewhere);
        }
        let value = b"1".as_slice().into();
        let now = self.clock.truth;
        let accepted = self.strict.get_mut(lane).is_none_or(|strict| strict.accepts(now));
        let mut response = Response::new(if accepted {
            Verdict::Done { conclusive: true, value }
        } else {
            Verdict::Throttled { retry_after: None, again: true }
        });
        response.after = self.latency;
        response
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
        let settles = request.response.as_ref().and_then(|response| response.settles);
        match settles.filter(|_| wanted) {
            Some(settles) => self.report_answered(attempt, settles),
            None => self.settle(attempt),
        }
    }

    /// The worker has the whole response, so the upstream has no open request any more. The worker
    /// reports its verdict later (L5).
    fn report_answered(&mut self, attempt: AttemptId, settles: Span) {
        let now = self.now();
        let request = self.wire.get_mut(&attempt).expect("the caller found it");
        request.answered = true;
        let (sent_at, job, lane) = (request.sent_at, request.call.job, request.lane.clone());
        self.counts.answered += 1;
        self.checker.left_the_wire(attempt, now);
        self.trace.note(now, format_args!("answered #{job} {lane}"));
        // The report includes the start, except when that is delayed.
        let told = self.conditions.steady || !self.rng.one_in(4);
        self.inbox.extend(sent_at.filter(|_| told).map(|at| Input::Started(attempt, at)));
        self.inbox.push(Input::Answered(attempt));
        self.after(settles, Next::Settle(attempt));
    }

    /// Reports the response a second time, or too late: the engine must ignore it.
    fn report_answered_again(&mut self, attempt: AttemptId) {
        if !self.conditions.steady && self.rng.one_in(8) {
            self.inbox.push(Input::Answered(attempt));
        }
    }

    /// The worker reports its verdict and closes the request.
    pub(crate) fn settle(&mut self, attempt: AttemptId) {
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        let answered = request.answered;
        if !request.told && !request.aborted {
            request.told = true;
            let told =
                request.response.as_ref().expect("sent requests have a response").told.clone();
            let roll = self.rng.next();
            if answered {
                self.report_answered_again(attempt);
            }
            self.inbox.push(Input::Told(attempt, told, roll));
            self.report_answered_again(attempt);
        }
        let lingers = if self.conditions.steady { 0 } else { self.rng.range(0, 3_000) };
        self.after(Span(lingers), Next::End(attempt));
    }

    /// The worker reports a timeout; the request may stay on the wire.
    pub(crate) fn time_out(&mut self, attempt: AttemptId) {
        let now = self.now();
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        if request.told || request.aborted {
            return;
        }
        request.told = true;
        let hangs = request.response.as_ref().filter(|_| !request.answered);
        let hangs = hangs.map_or(Span::ZERO, |response| response.hangs);
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

    /// The engine aborts the attempt: the worker closes the connection as soon as it can.
    pub(crate) fn abort(&mut self, attempt: AttemptId) {
        let Some(request) = self.wire.get_mut(&attempt) else { return };
        request.aborted = true;
        if request.sent_at.is_some() {
            let lingers = if self.conditions.steady { 0 } else { self.rng.range(0, 100_000) };
            self.after(Span(lingers), Next::End(attempt));
        }
    }

    /// The request leaves the wire.
    pub(crate) fn end(&mut self, attempt: AttemptId) {
        let Some(request) = self.wire.remove(&attempt) else { return };
        if !request.answered {
            self.checker.left_the_wire(attempt, self.clock.truth);
        }
        if !request.disowned {
            let delay = if self.conditions.steady { 0 } else { self.rng.range(0, 1_500) };
            self.after(Span(delay), Next::TellEnd(attempt));
        }
    }
}
